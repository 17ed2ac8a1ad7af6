"""`forbear bench`: the real handlers against a real PostgreSQL, measured so that anyone can repeat it."""
