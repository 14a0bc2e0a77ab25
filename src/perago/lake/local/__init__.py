"""The embedded lake: the lake port, implemented in a local folder without a server."""
