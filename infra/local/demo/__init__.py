"""The demonstration of `forbear up --demo`: receivers with manners good and bad, a stream of events, and a verdict."""
