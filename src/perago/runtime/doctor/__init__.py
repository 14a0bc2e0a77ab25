"""Checks for `perago doctor`, one file per kind of check.  They take values and return findings."""
