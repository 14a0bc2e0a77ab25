"""The check of a workflow's JSON against the tasks it uses, before anything runs; `check.py` is the way in."""
