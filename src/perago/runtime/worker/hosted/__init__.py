"""Executors that an engine hosts: each attempt is a job, whose messages arrive over a connection to this process."""
