"""Making a repository on a lakeFS server, where the server says in which storage it may be."""

from __future__ import annotations

import secrets
from typing import Any

from perago.errors import LakeRefused
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout
from perago.lake.lakefs.sdk import sdk


def create_repository(client: LakeFSClient, name: str) -> None:
    """Make a repository with branch `main` in a new folder of the server's default storage."""
    doing = f"make repository {name!r}"
    storage = client.call(doing, _storage, repeat=Repeat.ALWAYS)
    prefix = storage.get("default_namespace_prefix") or ""
    if not prefix and storage.get("blockstore_type") == "local":
        prefix = "local://"
    if not prefix:
        raise LakeRefused(
            f"this lakeFS has no default storage for repository {name!r}: make it with "
            f"`lakectl repo create lakefs://{name} STORAGE-NAMESPACE`, then go on without --import"
        )
    # A namespace can be used once only, even after its repository is gone.
    separator = "" if prefix.endswith("/") else "/"
    place = f"{prefix}{separator}{name}-{secrets.token_hex(4)}"
    wanted = sdk.RepositoryCreation(name=name, storage_namespace=place, default_branch="main")

    def create(apis: Apis, limit: Timeout) -> Any:
        return apis.repositories.create_repository(wanted, _request_timeout=limit)

    client.call(doing, create, repeat=Repeat.UNSENT)


def _storage(apis: Apis, limit: Timeout) -> dict[str, Any]:
    answer: dict[str, Any] = apis.config.get_config(_request_timeout=limit)
    return dict(answer.get("storage_config") or {})
