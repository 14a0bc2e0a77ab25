"""The lake port over a lakeFS server."""
