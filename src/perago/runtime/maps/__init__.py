"""`perago map`: runs one task over a table of workspaces on an engine, and keeps its record in the lake."""
