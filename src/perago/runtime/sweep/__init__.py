"""Removing what dead attempts left behind."""
