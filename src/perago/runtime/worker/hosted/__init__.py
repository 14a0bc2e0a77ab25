"""Executors hosted by an engine: each attempt is a job whose messages arrive over a connection to this process."""
