"""Task declarations: the decorator, the values it takes, and the checks.  Nothing here talks to a server."""
