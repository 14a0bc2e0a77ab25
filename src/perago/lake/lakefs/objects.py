"""Copies, deletes and creates objects through the lakeFS API."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from perago.errors import LakeError, LakeForbidden
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Repeat

_DELETES_PER_CALL = 1000


def copy_objects(
    client: LakeFSClient, repository: str, branch: str, source: str, paths: Sequence[str], parallel: int
) -> None:
    """Copy objects from the ref `source` to the same paths on a branch.  The server copies them, without committing."""

    def copy(path: str) -> None:
        doing = f"copy {path!r} of {source!r} onto branch {branch!r} of repository {repository!r}"
        client.call(doing, api.copy_object(repository, branch, path, source=source), repeat=Repeat.ALWAYS)

    if not paths:
        return
    with ThreadPoolExecutor(min(parallel, len(paths)), "perago-copy") as pool:
        list(pool.map(copy, paths))


def create_object(client: LakeFSClient, repository: str, branch: str, path: str, content: bytes) -> None:
    """Create an object.  Raises `LakeConflict` if the path already has one.

    The server checks this with a compare-and-swap on the branch's entry (`If-None-Match: *`).
    """
    doing = f"create object {path!r} on branch {branch!r} of repository {repository!r}"
    request = api.upload_object(repository, branch, path, content, if_none_match="*")
    # After a broken connection, a 412 could come from our own first try.  So report the break instead of retrying.
    client.call(doing, request, repeat=Repeat.UNSENT, status=201)


def delete_objects(client: LakeFSClient, repository: str, branch: str, paths: Sequence[str]) -> None:
    """Delete objects from a branch, without committing.  A missing path is not an error."""
    doing = f"delete objects from branch {branch!r} of repository {repository!r}"
    for start in range(0, len(paths), _DELETES_PER_CALL):
        batch = paths[start : start + _DELETES_PER_CALL]
        answer = client.call(doing, api.delete_objects(repository, branch, batch), repeat=Repeat.ALWAYS)
        for one in answer["errors"]:
            kind = LakeForbidden if one["status_code"] in (401, 403) else LakeError
            raise kind(f"{doing}: {one.get('path')!r}: {one['message']}")
