"""The content cache beside a lakeFS server."""
