"""Conductor's workflow JSON as values.  It is read here, in one place, without any I/O."""
