"""Whether what answers at an address is lakeFS, which version of it, and what it says of its store."""

from __future__ import annotations

from typing import Any

from perago.errors import LakeUnavailable
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout

_SECONDS = 10.0
"""A server that starts gets so long; one that is none does not get much longer."""


def server_name(client: LakeFSClient) -> str:
    """lakeFS and its version, by its own word; any user may ask for it."""
    doing = "ask lakeFS for its version"
    answer = client.call(doing, _config, repeat=Repeat.ALWAYS, timeout=_SECONDS)
    try:
        said = answer["version_config"]
        version, edition = said["version"], said.get("version_context") or "lakeFS"
    except (KeyError, TypeError, AttributeError):
        shown = " ".join(str(answer).split())[:80]
        raise LakeUnavailable(f"{doing}: what answers there is not lakeFS: {shown!r}") from None
    return f"{edition} {version}"


def store_of(client: LakeFSClient) -> tuple[str, bool]:
    """The kind of object store behind it, and whether it hands out presigned addresses."""
    doing = "ask lakeFS for its store"
    answer = client.call(doing, _config, repeat=Repeat.ALWAYS, timeout=_SECONDS)
    store = answer.get("storage_config") or {}
    return str(store.get("blockstore_type") or "unknown"), bool(store.get("pre_sign_support"))


def _config(apis: Apis, limit: Timeout) -> Any:
    return apis.config.get_config(_request_timeout=limit)
