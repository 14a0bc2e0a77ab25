"""The workspace root on disk: its lock, and removing what is in it."""
