"""The content cache of a lakeFS client."""
