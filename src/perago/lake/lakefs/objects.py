"""Copies, deletes and creates objects through the lakeFS API."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from perago.errors import LakeError, LakeForbidden
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout, check_status
from perago.lake.lakefs.sdk import sdk

_DELETES_PER_CALL = 1000


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


def create_object(client: LakeFSClient, repository: str, branch: str, path: str, content: bytes) -> None:
    """Create an object at a path that has none; the server compares and swaps the branch's entry (`If-None-Match: *`)."""
    doing = f"create object {path!r} on branch {branch!r} of repository {repository!r}"

    # The SDK wants a file name, whatever its signature declares.
    with tempfile.NamedTemporaryFile(prefix="perago-object-") as file:
        file.write(content)
        file.flush()

        def put(apis: Apis, limit: Timeout) -> Any:
            return apis.objects.upload_object_with_http_info(
                repository, branch, path, if_none_match="*", content=file.name, _request_timeout=limit
            )

        # After a cut connection, a 412 could come from our own first try, so do not retry: report the cut.
        check_status(client.call(doing, put, repeat=Repeat.UNSENT), 201, doing)


def delete_objects(client: LakeFSClient, repository: str, branch: str, paths: Sequence[str]) -> None:
    """Remove objects from a branch, uncommitted; a missing path is not an error."""
    doing = f"delete objects from branch {branch!r} of repository {repository!r}"
    for start in range(0, len(paths), _DELETES_PER_CALL):
        batch = sdk.PathList(paths=[*paths[start : start + _DELETES_PER_CALL]])
        answer = client.call(doing, partial(_delete, repository, branch, batch), repeat=Repeat.ALWAYS)
        for one in answer["errors"]:
            kind = LakeForbidden if one["status_code"] in (401, 403) else LakeError
            raise kind(f"{doing}: {one.get('path')!r}: {one['message']}")


def _delete(repository: str, branch: str, batch: Any, apis: Apis, limit: Timeout) -> Any:
    return apis.objects.delete_objects(repository, branch, batch, _request_timeout=limit)


def _copy(repository: str, branch: str, source: str, path: str, apis: Apis, limit: Timeout) -> Any:
    wanted = sdk.ObjectCopyCreation(src_path=path, src_ref=source)
    return apis.objects.copy_object(repository, branch, path, wanted, _request_timeout=limit)
