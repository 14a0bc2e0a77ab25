"""Executors that an engine hosts: started by a job of its own for each attempt, and heard over a line to this process."""
