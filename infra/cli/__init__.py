"""The `forbear` command: a client of the HTTP API and the replay function, and a receiver to try things with."""
