"""What the HTTP API takes and gives, as pydantic models: they validate, and OpenAPI is generated from them."""
