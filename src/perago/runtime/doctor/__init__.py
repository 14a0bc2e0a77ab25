"""Checks of `perago doctor`, one file per kind of check: values in, findings out."""
