"""The orchestrator port, implemented with a Conductor server."""
