"""The lakeFS API calls that Perago makes, each as a `Request` value.  Nothing here contacts a server.

Each function returns one `Request` for `LakeFSClient` to send.  Names, refs and paths may contain any character: every
segment of a URL's path is quoted as a whole, so that `feature/a` stays one segment.  Fields and parameters that Perago
leaves at the server's default are not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """An API call, not sent yet.  `path` contains the segments of the URL path below `/api/v1`."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, object] = field(default_factory=dict)
    body: Json | None = None
    content: bytes | None = None
    """An object's bytes, sent instead of a JSON body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False
    """True if the response body is not JSON: an object's bytes, plain text, or nothing."""

    @property
    def target(self) -> str:
        """The URL's path and query, as sent.  Raises `ValueError` if a name cannot be encoded as UTF-8."""
        path = "".join(f"/{quote(part, safe='')}" for part in self.path)
        query = "&".join(
            f"{name}={quote(_text(value))}" for name, value in self.query.items() if value is not None
        )
        return f"{path}?{query}" if query else path


def get_config() -> Request:
    """Request the server's version and its storage configuration."""
    return Request("GET", ("config",))


def create_repository(name: str, storage_namespace: str, default_branch: str) -> Request:
    """Create a repository."""
    body = {"name": name, "storage_namespace": storage_namespace, "default_branch": default_branch}
    return Request("POST", _path(), body=body)


def list_repositories(*, after: str, amount: int) -> Request:
    """List the repositories."""
    return Request("GET", _path(), {"after": after, "amount": amount})


def create_branch(repository: str, name: str, source: str, *, hidden: bool) -> Request:
    """Create a branch.  lakeFS returns 201."""
    body = {"name": name, "source": source, "hidden": hidden}
    return Request("POST", _path(repository, "branches"), body=body, raw=True)


def list_branches(repository: str, *, prefix: str, after: str, amount: int) -> Request:
    """List branches, including hidden ones."""
    query = {"prefix": prefix, "after": after, "amount": amount, "show_hidden": True}
    return Request("GET", _path(repository, "branches"), query)


def delete_branch(repository: str, branch: str) -> Request:
    """Drop a branch.  lakeFS returns 204."""
    return Request("DELETE", _path(repository, "branches", branch), raw=True)


def hard_reset_branch(repository: str, branch: str, ref: str) -> Request:
    """Move a branch to the commit of a ref.  lakeFS returns 204."""
    return Request("PUT", _path(repository, "branches", branch, "hard_reset"), {"ref": ref}, raw=True)


def diff_branch(
    repository: str, branch: str, *, amount: int, prefix: str | None = None, after: str | None = None
) -> Request:
    """List the uncommitted changes on a branch."""
    query = {"after": after, "amount": amount, "prefix": prefix}
    return Request("GET", _path(repository, "branches", branch, "diff"), query)


def commit(repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> Request:
    """Commit the uncommitted changes on a branch."""
    body = {"message": message, "metadata": dict(metadata)}
    return Request("POST", _path(repository, "branches", branch, "commits"), body=body)


def merge_into_branch(
    repository: str,
    source: str,
    target: str,
    *,
    message: str,
    metadata: Mapping[str, str],
    allow_empty: bool = False,
    squash: bool = True,
) -> Request:
    """Merge a ref into a branch as one commit."""
    body = {
        "message": message,
        "metadata": dict(metadata),
        "allow_empty": allow_empty,
        "squash_merge": squash,
    }
    return Request("POST", _path(repository, "refs", source, "merge", target), body=body)


def log_commits(
    repository: str, ref: str, *, amount: int, after: str | None = None, limit: bool | None = None
) -> Request:
    """List commits along first parents, newest first.  With `limit`, the list stops after `amount` commits."""
    query = {"after": after, "amount": amount, "limit": limit, "first_parent": True}
    return Request("GET", _path(repository, "refs", ref, "commits"), query)


def diff_refs(
    repository: str, left: str, right: str, *, prefix: str, after: str, amount: int, type: str = "two_dot"
) -> Request:
    """List the objects that differ between two commits.

    With the type `three_dot`, lists what `right` has changed since the last common ancestor, and which of it conflicts.
    """
    query = {"after": after, "amount": amount, "prefix": prefix, "type": type}
    return Request("GET", _path(repository, "refs", left, "diff", right), query)


def create_tag(repository: str, name: str, ref: str) -> Request:
    """Tag a ref."""
    return Request("POST", _path(repository, "tags"), body={"id": name, "ref": ref})


def list_tags(repository: str, *, prefix: str, after: str, amount: int) -> Request:
    """List tags."""
    query = {"prefix": prefix, "after": after, "amount": amount}
    return Request("GET", _path(repository, "tags"), query)


def delete_tag(repository: str, tag: str) -> Request:
    """Drop a tag.  lakeFS returns 204."""
    return Request("DELETE", _path(repository, "tags", tag), raw=True)


def list_objects(
    repository: str,
    ref: str,
    *,
    prefix: str,
    after: str,
    amount: int,
    delimiter: str | None = None,
    presign: bool | None = None,
) -> Request:
    """List objects.  With `delimiter`, lists only the direct children of `prefix`."""
    query = {
        "presign": presign,
        "after": after,
        "amount": amount,
        "delimiter": delimiter,
        "prefix": prefix,
    }
    return Request("GET", _path(repository, "refs", ref, "objects", "ls"), query)


def stat_object(
    repository: str, ref: str, path: str, *, user_metadata: bool | None = None, presign: bool | None = None
) -> Request:
    """Read an object's metadata."""
    query = {"path": path, "user_metadata": user_metadata, "presign": presign}
    return Request("GET", _path(repository, "refs", ref, "objects", "stat"), query)


def get_object(repository: str, ref: str, path: str, *, range: str | None = None) -> Request:
    """Read an object's bytes."""
    headers = {"Range": range} if range else {}
    return Request(
        "GET", _path(repository, "refs", ref, "objects"), {"path": path}, headers=headers, raw=True
    )


def upload_object(
    repository: str, branch: str, path: str, content: bytes, *, if_none_match: str | None = None
) -> Request:
    """Upload an object without committing it.  lakeFS returns 201."""
    headers = {"If-None-Match": if_none_match} if if_none_match else {}
    return Request(
        "POST",
        _path(repository, "branches", branch, "objects"),
        {"path": path},
        content=content,
        headers=headers,
    )


def copy_object(repository: str, branch: str, path: str, *, source: str) -> Request:
    """Copy an object from the ref `source` to the same path on a branch, without committing."""
    body = {"src_path": path, "src_ref": source}
    return Request(
        "POST", _path(repository, "branches", branch, "objects", "copy"), {"dest_path": path}, body
    )


def delete_objects(repository: str, branch: str, paths: Sequence[str]) -> Request:
    """Delete objects from a branch, without committing."""
    body = {"paths": [*paths]}
    return Request("POST", _path(repository, "branches", branch, "objects", "delete"), body=body)


def get_physical_address(repository: str, branch: str, path: str) -> Request:
    """Request a new location in the object store, with a presigned URL for writing to it."""
    return Request("GET", _staging(repository, branch, "backing"), {"path": path, "presign": True})


def link_physical_address(
    repository: str, branch: str, path: str, *, location: str, checksum: str, size: int
) -> Request:
    """Link the bytes at a location to a path on a branch."""
    body = {"staging": {"physical_address": location}, "checksum": checksum, "size_bytes": size}
    return Request("PUT", _staging(repository, branch, "backing"), {"path": path}, body)


def create_presign_multipart_upload(repository: str, branch: str, path: str) -> Request:
    """Start a multipart upload, without requesting URLs for its parts."""
    return Request("POST", _staging(repository, branch, "pmpu"), {"path": path, "parts": 0})


def upload_part(
    repository: str, branch: str, path: str, *, upload_id: str, number: int, location: str
) -> Request:
    """Request the presigned URL for one part of a multipart upload."""
    where = _staging(repository, branch, "pmpu", upload_id, "parts", str(number))
    return Request("PUT", where, {"path": path}, {"physical_address": location})


def complete_presign_multipart_upload(
    repository: str,
    branch: str,
    path: str,
    *,
    upload_id: str,
    location: str,
    etags: Sequence[str],
    user_metadata: Mapping[str, str],
) -> Request:
    """Complete a multipart upload with the ETags of its parts, in order."""
    body = {
        "physical_address": location,
        "parts": [{"part_number": number, "etag": etag} for number, etag in enumerate(etags, start=1)],
        "user_metadata": dict(user_metadata),
    }
    return Request("PUT", _staging(repository, branch, "pmpu", upload_id), {"path": path}, body)


def abort_presign_multipart_upload(
    repository: str, branch: str, path: str, *, upload_id: str, location: str
) -> Request:
    """Discard a multipart upload.  lakeFS returns 204."""
    where = _staging(repository, branch, "pmpu", upload_id)
    return Request("DELETE", where, {"path": path}, {"physical_address": location}, raw=True)


def _staging(repository: str, branch: str, *parts: str) -> tuple[str, ...]:
    return _path(repository, "branches", branch, "staging", *parts)


def _path(*parts: str) -> tuple[str, ...]:
    return ("repositories", *parts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
