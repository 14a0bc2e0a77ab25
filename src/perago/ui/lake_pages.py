"""The pages about branches: the list, a branch's history, its publications with their checks, and a single commit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.requests import Request

from perago.errors import LakeError, LakeNotFound, PeragoError
from perago.lake.base import Commit, Ref
from perago.protocol.attempt_record import AttemptRecord
from perago.runtime.lake_lookup import INTERNAL_NAME_PREFIX, suggesting_existing_names
from perago.ui.data_source import DataSource
from perago.ui.history import History, HistoryRow, history_page, row_of
from perago.ui.rendering import render
from perago.ui.step_page import phases_of

REPOSITORIES = 50
BRANCHES = 20
PUBLICATIONS = 20
CHANGES = 100
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class RepositoryEntry:
    """A repository, some of its branches with their heads, and the number of other branches."""

    name: str
    branches: Sequence[tuple[Ref, Commit]]
    more: int


@dataclass(frozen=True, slots=True)
class CheckedCommit:
    """A commit with the record of the execution that made it, or the reason why there is no record."""

    row: HistoryRow
    record: AttemptRecord | None
    why: str = ""


def branches(source: DataSource, request: Request) -> str:
    """Render the list of repositories and their branches.

    Each branch links to its history, its data or its checks, depending on the requested page.
    """
    view = request.url.path.strip("/")
    begin, after = _page(request)
    names = sorted(source.lake.repositories()) if source.has_lake else []
    wanted = [name for name in names if name > after][: REPOSITORIES + 1]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = list(pool.map(lambda name: _repository_entry(source, name), wanted[:REPOSITORIES]))
    following = wanted[REPOSITORIES - 1] if len(wanted) > REPOSITORIES else None
    return render(
        "branches.html",
        source=source,
        view=view,
        repositories=listed,
        following=following,
        first=begin,
        to={"branches": "/history", "data": "/folder", "checks": "/publications"}[view],
    )


def history(source: DataSource, request: Request) -> str:
    """Render a branch's history as a graph."""
    repository, ref = place(source, request)
    found = history_page(source, repository, request.query_params.get("from") or ref)
    return render(
        "history.html",
        source=source,
        view="branches",
        repository=repository,
        ref=ref,
        history=found,
        first="from" not in request.query_params,
        names=_names(source, repository),
    )


def publications(source: DataSource, request: Request) -> str:
    """Render a branch's newest publications, each with the checks that it passed."""
    repository, ref = place(source, request)
    found: History = history_page(source, repository, request.query_params.get("from") or ref, PUBLICATIONS)
    rows = [row for row in found.rows if row.maker is not None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        checked = list(pool.map(lambda row: check_results(source, row), rows))
    return render(
        "publications.html",
        source=source,
        view="checks",
        repository=repository,
        ref=ref,
        checked=checked,
        following=found.following,
        names=_names(source, repository),
    )


def commit(source: DataSource, request: Request) -> str:
    """Render one commit: its author, the checks it passed, and its changes."""
    repository, ref = place(source, request)
    found = source.lake.commit_at(repository, ref)
    checked = check_results(source, row_of(found))
    after, parent = request.query_params.get("after", ""), found.first_parent
    changes = (
        source.lake.changes(repository, parent, found.id, after=after, limit=CHANGES)
        if parent is not None
        else None
    )
    tags = [tag.name for tag in source.lake.tags(repository, INTERNAL_NAME_PREFIX) if tag.commit == found.id]
    return render(
        "commit.html",
        source=source,
        view="branches",
        repository=repository,
        ref=ref,
        commit=found,
        parent=parent,
        checked=checked,
        phases=phases_of(checked.record),
        changes=changes,
        after=after,
        tags=tags,
    )


def check_results(source: DataSource, row: HistoryRow) -> CheckedCommit:
    """Return a commit with the record of its execution, or with the reason why there is no record."""
    if row.maker is None:
        return CheckedCommit(row, None)
    try:
        record = source.record_of(row.commit)
    except PeragoError as error:
        return CheckedCommit(row, None, source.mask(str(error)))
    return CheckedCommit(row, record, "" if record else "its attempt left no record")


def place(source: DataSource, request: Request) -> tuple[str, str]:
    """Return the repository and the ref named in a request.

    If either does not exist, an error is raised that suggests existing names.
    """
    repository, ref = request.query_params.get("repo", ""), request.query_params.get("ref", "main")
    if not repository:
        raise LakeNotFound("the address names no repository")
    with suggesting_existing_names(source.lake, repository, ref):
        source.lake.commit_at(repository, ref)
    return repository, ref


def _page(request: Request) -> tuple[bool, str]:
    after = request.query_params.get("after", "")
    return not after, after


def _repository_entry(source: DataSource, name: str) -> RepositoryEntry:
    try:
        found = _names(source, name)
        return RepositoryEntry(
            name,
            [(one, source.commit(name, one.commit)) for one in found[:BRANCHES]],
            max(0, len(found) - BRANCHES),
        )
    except LakeError:
        # An unreadable repository must not hide the others.
        return RepositoryEntry(name, [], 0)


def _names(source: DataSource, repository: str) -> list[Ref]:
    """Return a repository's branches, `main` first. Internal branches are left out."""
    found = [
        one for one in source.lake.branches(repository, "") if not one.name.startswith(INTERNAL_NAME_PREFIX)
    ]
    return sorted(found, key=lambda one: (one.name != "main", one.name))
