"""Where Forbear runs: the local stack, and the command line."""

import sys

# Before anything is imported that an older Python cannot even read.
if sys.version_info < (3, 13):  # noqa: UP036 - whoever runs an older one gets a line, not a traceback
    sys.stderr.write(f"forbear: this is Python {sys.version.split()[0]}; Forbear needs 3.13 or later\n")
    sys.exit(2)
