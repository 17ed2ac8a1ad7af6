"""What is measured, a module a group: each gives its figures one by one, as they are ready."""
