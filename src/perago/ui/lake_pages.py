"""The pages of branches: which there are, a branch's history, its publications with their checks, and one commit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.requests import Request

from perago.errors import LakeError, LakeNotFound, PeragoError
from perago.lake.base import Commit, Ref
from perago.protocol.attempt_record import AttemptRecord
from perago.runtime.lake_lookup import OWN, suggesting_existing_names
from perago.ui.data_source import Site
from perago.ui.history import History, Row, history_page, row_of
from perago.ui.rendering import render
from perago.ui.step_page import phases_of

REPOSITORIES = 50
BRANCHES = 20
PUBLICATIONS = 20
CHANGES = 100
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Listed:
    """A repository, some of its branches with the commits they are at, and how many more there are."""

    name: str
    branches: Sequence[tuple[Ref, Commit]]
    more: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A publication, with what is kept of the execution that made it, or why nothing is."""

    row: Row
    record: AttemptRecord | None
    why: str = ""


def branches(site: Site, request: Request) -> str:
    """The repositories and their branches, with the way to a branch's history, data or checks."""
    view = request.url.path.strip("/")
    begin, after = _page(request)
    names = sorted(site.lake.repositories()) if site.has_lake else []
    wanted = [name for name in names if name > after][: REPOSITORIES + 1]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = list(pool.map(lambda name: _listed(site, name), wanted[:REPOSITORIES]))
    following = wanted[REPOSITORIES - 1] if len(wanted) > REPOSITORIES else None
    return render(
        "branches.html",
        site=site,
        view=view,
        repositories=listed,
        following=following,
        first=begin,
        to={"branches": "/history", "data": "/folder", "checks": "/publications"}[view],
    )


def history(site: Site, request: Request) -> str:
    """A branch's history as a graph."""
    repository, ref = place(site, request)
    found = history_page(site, repository, request.query_params.get("from") or ref)
    return render(
        "history.html",
        site=site,
        view="branches",
        repository=repository,
        ref=ref,
        history=found,
        first="from" not in request.query_params,
        names=_names(site, repository),
    )


def publications(site: Site, request: Request) -> str:
    """The newest publications of a branch, with the rules that each passed."""
    repository, ref = place(site, request)
    found: History = history_page(site, repository, request.query_params.get("from") or ref, PUBLICATIONS)
    rows = [row for row in found.rows if row.maker is not None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        checked = list(pool.map(lambda row: checked_row(site, row), rows))
    return render(
        "publications.html",
        site=site,
        view="checks",
        repository=repository,
        ref=ref,
        checked=checked,
        following=found.following,
        names=_names(site, repository),
    )


def commit(site: Site, request: Request) -> str:
    """One commit: who made it, which rules it passed, and what it changed."""
    repository, ref = place(site, request)
    found = site.lake.commit_at(repository, ref)
    checked = checked_row(site, row_of(found))
    after, parent = request.query_params.get("after", ""), found.first_parent
    changes = (
        site.lake.changes(repository, parent, found.id, after=after, limit=CHANGES)
        if parent is not None
        else None
    )
    tags = [tag.name for tag in site.lake.tags(repository, OWN) if tag.commit == found.id]
    return render(
        "commit.html",
        site=site,
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


def checked_row(site: Site, row: Row) -> Checked:
    """A commit with the record of its execution, as far as its orchestrator still has it."""
    if row.maker is None:
        return Checked(row, None)
    try:
        record = site.record_of(row.commit)
    except PeragoError as error:
        return Checked(row, None, site.mask(str(error)))
    return Checked(row, record, "" if record else "its attempt left no record")


def place(site: Site, request: Request) -> tuple[str, str]:
    """The repository and the ref that a request names; what is not there is told with what is."""
    repository, ref = request.query_params.get("repo", ""), request.query_params.get("ref", "main")
    if not repository:
        raise LakeNotFound("the address names no repository")
    with suggesting_existing_names(site.lake, repository, ref):
        site.lake.commit_at(repository, ref)
    return repository, ref


def _page(request: Request) -> tuple[bool, str]:
    after = request.query_params.get("after", "")
    return not after, after


def _listed(site: Site, name: str) -> Listed:
    try:
        found = _names(site, name)
        return Listed(
            name,
            [(one, site.commit(name, one.commit)) for one in found[:BRANCHES]],
            max(0, len(found) - BRANCHES),
        )
    except LakeError:
        # One repository that cannot be read hides no other.
        return Listed(name, [], 0)


def _names(site: Site, repository: str) -> list[Ref]:
    """The branches that people made, `main` first."""
    found = [one for one in site.lake.branches(repository, "") if not one.name.startswith(OWN)]
    return sorted(found, key=lambda one: (one.name != "main", one.name))
