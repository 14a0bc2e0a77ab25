"""Branches, tags, commits and repositories on a lakeFS server, and the server's name and object store.

- `head` reads the log of `<branch>@`.  This takes one call, has no batching delay on the server, and rejects a tag of
  that name.
- Creating a branch, or dropping a branch or tag, succeeds only with the status that lakeFS itself sends, never with a
  proxy's.
- A new repository is created in the server's default storage.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

from perago.errors import LakeNotFound, LakeRefused, LakeUnavailable
from perago.lake.base import Commit, Ref
from perago.lake.lakefs import api
from perago.lake.lakefs.api import Json, Request
from perago.lake.lakefs.client import LakeFSClient, Repeat
from perago.lake.lakefs.errors import not_lakefs

_OWN_METADATA = ".lakefs."
_PAGE = 1000
Page = Callable[[str], Request]
"""A function that returns the request for the page that starts after a name."""
_SECONDS = 10.0
"""Timeout for reading the server's configuration.

It is long enough for a server that is still starting, and short enough for an endpoint that is not lakeFS.
"""


class Refs:
    """Reads, creates and drops refs in the repositories of one server.  Thread-safe."""

    def __init__(self, client: LakeFSClient) -> None:
        self._client = client

    def commit_at(self, repository: str, ref: str) -> Commit:
        """Return the commit named by a branch, tag, commit id or unique id prefix."""
        doing = f"read {ref!r} of repository {repository!r}"
        return _commit(self._newest(doing, repository, ref))

    def head(self, repository: str, branch: str, *, timeout: float | None = None) -> Commit:
        """Return the commit that a branch points to now.  `timeout` is the total time for all tries."""
        doing = f"read the head of branch {branch!r} of repository {repository!r}"
        return _commit(self._newest(doing, repository, f"{branch}@", timeout))

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Yield at most `limit` commits from `ref` along first parents, newest first."""
        doing = f"read the log of {ref!r} of repository {repository!r}"
        amount = max(1, min(limit, _PAGE))
        return self._first_commits(
            doing, lambda after: api.log_commits(repository, ref, after=after, amount=amount), limit
        )

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Create a branch at `source`.  Raises `LakeConflict` if the name is taken."""
        # After a broken connection, a 409 could come from our own first try.  So report the break instead of retrying.
        doing = f"create branch {name!r} of repository {repository!r} at {source!r}"
        self._client.call(
            doing,
            api.create_branch(repository, name, source, hidden=hidden),
            repeat=Repeat.UNSENT,
            status=201,
        )

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the branches whose name starts with `prefix`, including hidden ones."""
        return self._refs(
            f"list the branches {prefix}* of repository {repository!r}",
            lambda after: api.list_branches(repository, prefix=prefix, after=after, amount=_PAGE),
        )

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and its uncommitted objects."""
        self._drop(f"drop branch {name!r} of repository {repository!r}", api.delete_branch(repository, name))

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Tag a commit.  Raises `LakeConflict` if the name is taken."""
        self._client.call(
            f"create tag {name!r} of repository {repository!r} at {commit!r}",
            api.create_tag(repository, name, commit),
            repeat=Repeat.UNSENT,
            within=timeout,
        )

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the tags whose name starts with `prefix`."""
        return self._refs(
            f"list the tags {prefix}* of repository {repository!r}",
            lambda after: api.list_tags(repository, prefix=prefix, after=after, amount=_PAGE),
        )

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""
        self._drop(f"drop tag {name!r} of repository {repository!r}", api.delete_tag(repository, name))

    def _newest(self, doing: str, repository: str, ref: str, timeout: float | None = None) -> Json:
        try:
            answer = self._client.call(
                doing,
                api.log_commits(repository, ref, amount=1, limit=True),
                repeat=Repeat.ALWAYS,
                within=timeout,
            )
        except LakeRefused as error:
            # 400: no ref can have this name, or `<name>@` names a tag or a commit.
            raise LakeNotFound(str(error)) from error
        found: Json = answer["results"][0]
        return found

    def _first_commits(self, doing: str, page: Page, limit: int) -> Iterator[Commit]:
        left = limit
        for results in self._client.pages(doing, page) if limit > 0 else ():
            for one in results[:left]:
                yield _commit(one)
            left -= len(results)
            if left <= 0:
                return

    def _refs(self, doing: str, page: Page) -> list[Ref]:
        pages = self._client.pages(doing, page)
        return [Ref(one["id"], one["commit_id"]) for results in pages for one in results]

    def _drop(self, doing: str, request: Request) -> None:
        try:
            self._client.call(doing, request, repeat=Repeat.ALWAYS, status=204)
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
        committer=str(answer.get("committer") or ""),
    )


def create_repository(client: LakeFSClient, name: str) -> None:
    """Create a repository with a branch `main`, in a new folder in the server's default storage."""
    doing = f"make repository {name!r}"
    storage = _storage(client.call(doing, api.get_config(), repeat=Repeat.ALWAYS), doing)
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
    client.call(doing, api.create_repository(name, place, "main"), repeat=Repeat.UNSENT)


def server_name(client: LakeFSClient) -> str:
    """Return the server's edition and version.  Any user may read them.

    Raises `LakeUnavailable` if the server is not lakeFS.
    """
    doing = "ask lakeFS for its version"
    answer = client.call(doing, api.get_config(), repeat=Repeat.ALWAYS, timeout=_SECONDS)
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
    answer = client.call(doing, api.get_config(), repeat=Repeat.ALWAYS, timeout=_SECONDS)
    store = _storage(answer, doing)
    return str(store.get("blockstore_type") or "unknown"), bool(store.get("pre_sign_support"))


def _storage(config: Json, doing: str) -> Json:
    try:
        return dict(config.get("storage_config") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise not_lakefs(doing, "") from error
