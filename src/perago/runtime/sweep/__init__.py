"""Removes branches, tags and workdirs that dead attempts left behind."""
