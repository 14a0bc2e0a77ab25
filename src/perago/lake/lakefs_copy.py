"""Copying objects inside a repository of lakeFS, on the server: several at once, no byte passes through here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from perago.lake.lakefs_client import Apis, LakeFSClient, Repeat, Timeout, sdk


def copy_objects(
    client: LakeFSClient, repository: str, branch: str, source: str, paths: Sequence[str], parallel: int
) -> None:
    """Put objects of the ref `source` onto a branch under the same paths, uncommitted."""

    def copy(path: str) -> None:
        doing = f"copy {path!r} of {source!r} onto branch {branch!r} of repository {repository!r}"
        client.call(doing, partial(_copy, repository, branch, source, path), repeat=Repeat.ALWAYS)

    if not paths:
        return
    with ThreadPoolExecutor(min(parallel, len(paths)), "perago-copy") as pool:
        list(pool.map(copy, paths))


def _copy(repository: str, branch: str, source: str, path: str, apis: Apis, limit: Timeout) -> Any:
    wanted = sdk.ObjectCopyCreation(src_path=path, src_ref=source)
    return apis.objects.copy_object(repository, branch, path, wanted, _request_timeout=limit)
