"""Environments of workers."""

from __future__ import annotations

SERVERS = {
    "LAKECTL_SERVER_ENDPOINT_URL": "http://lake.example",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "AKIA",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "lake/secret+1",
    "CONDUCTOR_SERVER_URL": "https://user:in-the-url@conductor.example/api",
    "CONDUCTOR_AUTH_KEY": "key",
    "CONDUCTOR_AUTH_SECRET": "conductor-secret",
}
"""Both servers, with secrets wherever one may stand."""
