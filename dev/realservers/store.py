"""versitygw for a production set: an S3 store on top of a folder, with a single bucket for lakeFS's objects."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

from realservers import VERSITYGW_VERSION
from realservers.artifacts import versitygw_command
from realservers.state import State, state_folder

BUCKET = "lakefs"
REGION = "us-east-1"
_HEALTH = "/health-of-the-store"


def command(state: State) -> list[str]:
    """Return the command that starts the store. Creates the bucket's folder."""
    home = state_folder() / "store"
    buckets, notes = home / "buckets", home / "notes"
    for folder in (buckets / BUCKET, notes):
        folder.mkdir(parents=True, exist_ok=True)
    where = ["--port", f"127.0.0.1:{state.store_port}", "--health", _HEALTH, "--region", REGION, "--quiet"]
    # An object's S3 metadata is stored in extended attributes, if the file system supports them.
    beside = [] if _takes_attributes(home) else ["--sidecar", str(notes)]
    return [versitygw_command(), *where, "posix", *beside, str(buckets)]


def secrets(state: State) -> dict[str, str]:
    """Return the store's keys as environment variables."""
    return {"ROOT_ACCESS_KEY": state.store_key_id, "ROOT_SECRET_KEY": state.backing_secret}


def version(state: State, timeout: float) -> str | None:
    """Return the version that was built, if the store answers. The store does not report its version."""
    # No proxy: the servers are on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(state.store_url + _HEALTH, timeout=timeout) as answer:
        own = answer.headers.get("Server") == "VERSITYGW"
    return VERSITYGW_VERSION if own else None


def _takes_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.perago", b"1")
    except (OSError, AttributeError):
        return False
    return True
