"""The orchestrator port over a Conductor server."""
