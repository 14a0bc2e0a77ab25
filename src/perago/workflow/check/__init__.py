"""Checks workflow JSON against the tasks it uses.  `check.py` is the entry point."""
