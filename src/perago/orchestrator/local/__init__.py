"""The embedded orchestrator: Conductor's workflows in one SQLite file, without a server."""
