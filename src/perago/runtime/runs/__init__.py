"""Runs of `perago run`: their records, what their workflows use, and how one begins, goes on and ends."""
