"""Runs of `perago run`: starting, driving, resuming, recording, listing and inspecting them."""
