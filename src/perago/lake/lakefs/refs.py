"""Branches, tags, commits and repositories of a lakeFS server, and the server's name and store.

- `head` asks the log for `<branch>@`: one call, no batching delay on the server, and a tag of that name is refused.
- Creating and dropping count only with the status that lakeFS itself gives, never with a proxy's.
- A new repository goes to the server's default storage.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from perago.errors import LakeNotFound, LakeRefused, LakeUnavailable
from perago.lake.base import Commit, Ref
from perago.lake.lakefs.client import Apis, Json, LakeFSClient, Repeat, Timeout, check_status
from perago.lake.lakefs.sdk import sdk

_OWN_METADATA = ".lakefs."
_PAGE = 1000
_SECONDS = 10.0
"""Enough for a server that is starting, and not too long to wait for one that is not lakeFS."""


class Refs:
    """The refs of one server's repositories; safe for threads."""

    def __init__(self, client: LakeFSClient) -> None:
        self._client = client

    def commit_at(self, repository: str, ref: str) -> Commit:
        """Return the commit that a branch, tag, commit id or unique id prefix names."""
        doing = f"read {ref!r} of repository {repository!r}"
        return _commit(self._newest(doing, repository, ref))

    def head(self, repository: str, branch: str, *, timeout: float | None = None) -> Commit:
        """Return the commit a branch points to now; `timeout` limits all tries together."""
        doing = f"read the head of branch {branch!r} of repository {repository!r}"
        return _commit(self._newest(doing, repository, f"{branch}@", timeout))

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Yield at most `limit` commits from `ref` along first parents, newest first."""
        doing = f"read the log of {ref!r} of repository {repository!r}"

        def page(apis: Apis, timeout: Timeout, after: str) -> Any:
            amount = max(1, min(limit, _PAGE))
            return apis.refs.log_commits(
                repository, ref, after=after, amount=amount, first_parent=True, _request_timeout=timeout
            )

        return self._first_commits(doing, page, limit)

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Create a branch at `source`.  Raises `LakeConflict` if the name is taken."""
        wanted = sdk.BranchCreation(name=name, source=source, hidden=hidden)
        # After a cut connection, a 409 could come from our own first try, so do not retry: report the cut.
        doing = f"create branch {name!r} of repository {repository!r} at {source!r}"
        answer = self._client.call(
            doing,
            lambda apis, limit: apis.branches.create_branch_with_http_info(
                repository, wanted, _request_timeout=limit
            ),
            repeat=Repeat.UNSENT,
        )
        check_status(answer, 201, doing)

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the branches whose name starts with `prefix`, hidden ones included."""

        def page(apis: Apis, limit: Timeout, after: str) -> Any:
            return apis.branches.list_branches(
                repository, prefix=prefix, after=after, amount=_PAGE, show_hidden=True, _request_timeout=limit
            )

        return self._refs(f"list the branches {prefix}* of repository {repository!r}", page)

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and its uncommitted objects."""
        self._drop(
            f"drop branch {name!r} of repository {repository!r}",
            lambda apis, limit: apis.branches.delete_branch_with_http_info(
                repository, name, _request_timeout=limit
            ),
        )

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Tag a commit.  Raises `LakeConflict` if the name is taken."""
        wanted = sdk.TagCreation(id=name, ref=commit)
        self._client.call(
            f"create tag {name!r} of repository {repository!r} at {commit!r}",
            lambda apis, limit: apis.tags.create_tag(repository, wanted, _request_timeout=limit),
            repeat=Repeat.UNSENT,
            within=timeout,
        )

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the tags whose name starts with `prefix`."""

        def page(apis: Apis, limit: Timeout, after: str) -> Any:
            return apis.tags.list_tags(
                repository, prefix=prefix, after=after, amount=_PAGE, _request_timeout=limit
            )

        return self._refs(f"list the tags {prefix}* of repository {repository!r}", page)

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""
        self._drop(
            f"drop tag {name!r} of repository {repository!r}",
            lambda apis, limit: apis.tags.delete_tag_with_http_info(repository, name, _request_timeout=limit),
        )

    def _newest(self, doing: str, repository: str, ref: str, timeout: float | None = None) -> Json:
        try:
            answer = self._client.call(
                doing,
                lambda apis, limit: apis.refs.log_commits(
                    repository, ref, amount=1, limit=True, first_parent=True, _request_timeout=limit
                ),
                repeat=Repeat.ALWAYS,
                within=timeout,
            )
        except LakeRefused as error:
            # 400: no ref can have this name, or `<name>@` names a tag or a commit.
            raise LakeNotFound(str(error)) from error
        found: Json = answer["results"][0]
        return found

    def _first_commits(self, doing: str, page: Any, limit: int) -> Iterator[Commit]:
        left = limit
        for results in self._client.pages(doing, page) if limit > 0 else ():
            for one in results[:left]:
                yield _commit(one)
            left -= len(results)
            if left <= 0:
                return

    def _refs(self, doing: str, page: Any) -> list[Ref]:
        pages = self._client.pages(doing, page)
        return [Ref(one["id"], one["commit_id"]) for results in pages for one in results]

    def _drop(self, doing: str, call: Any) -> None:
        try:
            check_status(self._client.call(doing, call, repeat=Repeat.ALWAYS), 204, doing)
        except LakeNotFound:
            return


def _commit(answer: Json) -> Commit:
    metadata = answer.get("metadata") or {}
    return Commit(
        id=answer["id"],
        parents=tuple(answer["parents"]),
        message=answer["message"],
        metadata={key: value for key, value in metadata.items() if not key.startswith(_OWN_METADATA)},
        created=float(answer["creation_date"]),
    )


def create_repository(client: LakeFSClient, name: str) -> None:
    """Create a repository with branch `main` in a new folder of the server's default storage."""
    doing = f"make repository {name!r}"
    storage = client.call(doing, _storage, repeat=Repeat.ALWAYS)
    prefix = storage.get("default_namespace_prefix") or ""
    if not prefix and storage.get("blockstore_type") == "local":
        prefix = "local://"
    if not prefix:
        raise LakeRefused(
            f"this lakeFS has no default storage for repository {name!r}: create it with "
            f"`lakectl repo create lakefs://{name} STORAGE-NAMESPACE`, then continue without --import"
        )
    # A namespace can be used only once, even after its repository is deleted.
    separator = "" if prefix.endswith("/") else "/"
    place = f"{prefix}{separator}{name}-{secrets.token_hex(4)}"
    wanted = sdk.RepositoryCreation(name=name, storage_namespace=place, default_branch="main")

    def create(apis: Apis, limit: Timeout) -> Any:
        return apis.repositories.create_repository(wanted, _request_timeout=limit)

    client.call(doing, create, repeat=Repeat.UNSENT)


def server_name(client: LakeFSClient) -> str:
    """Return the server's edition and version, which any user may read.  Raises `LakeUnavailable` if it is not lakeFS."""
    doing = "ask lakeFS for its version"
    answer = client.call(doing, _config, repeat=Repeat.ALWAYS, timeout=_SECONDS)
    try:
        said = answer["version_config"]
        version, edition = said["version"], said.get("version_context") or "lakeFS"
    except (KeyError, TypeError, AttributeError):
        shown = " ".join(str(answer).split())[:80]
        raise LakeUnavailable(f"{doing}: the server there is not lakeFS: {shown!r}") from None
    return f"{edition} {version}"


def store_of(client: LakeFSClient) -> tuple[str, bool]:
    """Return the kind of object store behind lakeFS, and whether it supports presigned URLs."""
    doing = "ask lakeFS for its store"
    answer = client.call(doing, _config, repeat=Repeat.ALWAYS, timeout=_SECONDS)
    store = answer.get("storage_config") or {}
    return str(store.get("blockstore_type") or "unknown"), bool(store.get("pre_sign_support"))


def _storage(apis: Apis, limit: Timeout) -> dict[str, Any]:
    # Inside the call, so that an answer of another shape becomes a `LakeError`.
    return dict(_config(apis, limit).get("storage_config") or {})


def _config(apis: Apis, limit: Timeout) -> Any:
    return apis.config.get_config(_request_timeout=limit)
