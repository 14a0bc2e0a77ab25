"""Workflow definitions: compared and registered, and started with an input that was checked."""
