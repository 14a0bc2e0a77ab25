"""The lake port, implemented on a lakeFS server."""
