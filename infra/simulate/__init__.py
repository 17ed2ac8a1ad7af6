"""A policy in virtual time: the real claim and settle SQL and the real policy code, against simulated receivers."""
