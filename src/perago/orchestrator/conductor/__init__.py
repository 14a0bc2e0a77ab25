"""The orchestrator port, implemented for a Conductor server."""
