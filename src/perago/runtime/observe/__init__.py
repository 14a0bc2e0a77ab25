"""Observability of a worker: logs, events, metrics and health."""
