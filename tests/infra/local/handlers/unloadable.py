"""Cannot be initialised."""

raise LookupError("no settings")
