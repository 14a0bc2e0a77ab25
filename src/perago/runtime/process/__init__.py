"""Sets up the current process, and restores its state after a body has run."""
