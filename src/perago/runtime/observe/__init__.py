"""What a worker shows of itself: logs, events, metrics, health."""
