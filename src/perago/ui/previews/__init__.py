"""A look into an object: by its name and first bytes, never the whole of it."""
