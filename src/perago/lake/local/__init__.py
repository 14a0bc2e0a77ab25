"""The embedded lake."""
