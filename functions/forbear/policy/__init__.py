"""What to do about an attempt's result: schedule, Retry-After, verdict and breaker as pure functions over plain values.

Times and randomness are arguments. Nothing in here may know the database, the sender, AWS, a clock or the environment.
"""
