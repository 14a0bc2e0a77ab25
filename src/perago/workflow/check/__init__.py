"""Checks workflow JSON against the tasks that it uses.  `check.py` is the entry point."""
