"""Plans a run: says which steps would be skipped and which would run, and why, without running anything."""
