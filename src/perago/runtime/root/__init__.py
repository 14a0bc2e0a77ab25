"""The workspace root on disk: its lock, its owners, and the removal of its contents."""
