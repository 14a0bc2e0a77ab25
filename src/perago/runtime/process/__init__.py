"""The current process: its setup, and restoring its state after a body has run."""
