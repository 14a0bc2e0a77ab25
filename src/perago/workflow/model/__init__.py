"""Conductor's workflow JSON as values: read here once, without any I/O."""
