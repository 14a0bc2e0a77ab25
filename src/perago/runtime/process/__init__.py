"""This process: who it is, and how it is put back after a body."""
