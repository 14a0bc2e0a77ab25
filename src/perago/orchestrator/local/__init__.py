"""The embedded orchestrator."""
