"""Observing a worker: logs, events, metrics, health."""
