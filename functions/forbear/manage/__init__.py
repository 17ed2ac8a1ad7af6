"""What the management API does, one module a subject: requests in, rows read and changed, answers out."""
