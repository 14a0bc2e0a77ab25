"""`perago map`: one task over a table of workspaces, run by an engine, with its record in the lake."""
