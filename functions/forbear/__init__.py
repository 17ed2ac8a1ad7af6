"""Forbear: webhooks from AWS, delivered with restraint."""

__version__ = "0.1.0"
