"""The workspace root on disk: its lock, its owners, and removing what is in it."""
