"""The orchestrator port on a Conductor server."""
