"""Transfers between a lakeFS server and local files."""
