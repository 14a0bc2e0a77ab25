"""Bytes between a lakeFS server and files."""
