"""`perago map`: runs one task over a table of workspaces on an engine such as Spark, and keeps a record in the lake."""
