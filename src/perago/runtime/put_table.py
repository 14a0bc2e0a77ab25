"""Puts many folders, each onto a branch of its own repository, as the rows of a table say.

Every row is a put of its own: one commit, or none if nothing differs.  So the same table can be put again after a failure,
and only what is missing is put.  Rows of one repository run one after the other, in the table's order.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perago.errors import LakeConflict, PeragoError, RuntimeConfigError
from perago.lake.base import Lake, Upload
from perago.protocol.suggestions import did_you_mean
from perago.runtime.folder_upload import FolderPut, PutPlan, Target, plan_put, read_folder
from perago.runtime.lake_lookup import suggesting_existing_names

COLUMNS = ("repository", "folder", "branch", "prefix")
NewBranches = Callable[[], Iterator[str]]


@dataclass(frozen=True, slots=True)
class PutRow:
    """A row of the table: a folder, and where to put it.  `number` counts from 1."""

    number: int
    target: Target
    folder: Path


@dataclass(frozen=True, slots=True)
class RowPut:
    """A row with what it would put, what it has put, or why it failed.

    `plan` is None if the repository does not exist yet.  `commit` is empty before the put.
    """

    row: PutRow
    files: Sequence[Upload] = ()
    plan: PutPlan | None = None
    commit: str = ""
    error: str = ""

    @property
    def changed(self) -> bool:
        """True if a commit was made."""
        return bool(self.commit) and self.plan is not None and self.commit != self.plan.head


def parse_rows(
    records: Sequence[Mapping[str, Any]], default: Target, normalize: Callable[[str], str]
) -> list[PutRow]:
    """Return the rows of a table.  Raises `RuntimeConfigError` for an invalid one.

    `default` has the branch, the prefix and the options of rows that do not name their own.
    """
    rows: list[PutRow] = []
    seen: dict[Target, int] = {}
    for number, record in enumerate(records, start=1):
        unknown = next((name for name in record if name not in COLUMNS), None)
        if unknown is not None:
            raise RuntimeConfigError(
                f"the table has a column {unknown!r}; it may have {', '.join(COLUMNS)}"
                f"{did_you_mean(unknown, COLUMNS)}"
            )
        given = {name: _text(record, name, number) for name in COLUMNS}
        for name in ("repository", "folder"):
            if not given[name]:
                raise RuntimeConfigError(f"row {number} of the table has no {name}: fill it in")
        target = replace(
            default,
            repository=given["repository"],
            branch=given["branch"] or default.branch,
            prefix=normalize(given["prefix"]) or default.prefix,
        )
        if target in seen:
            raise RuntimeConfigError(
                f"rows {seen[target]} and {number} of the table put into the same place of {target.repository}: remove "
                "one, or give them another prefix"
            )
        seen[target] = number
        rows.append(PutRow(number, target, Path(given["folder"])))
    return rows


def _text(record: Mapping[str, Any], name: str, number: int) -> str:
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise RuntimeConfigError(f"row {number} of the table: {name} is {value!r}; write it as text")
    return (value or "").strip()


class TablePut:
    """Puts the rows of a table onto a lake, several repositories at once."""

    def __init__(
        self,
        lake: Lake,
        *,
        create: bool,
        leave_out: Path,
        jobs: int,
        new_branches: NewBranches,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare to put.  `options` are those for the servers, for the commands in error messages."""
        self._lake = lake
        self._options = options
        self._create = create
        self._leave_out = leave_out
        self._jobs = jobs
        self._new_branches = new_branches

    def prepare(self, rows: Sequence[PutRow]) -> list[RowPut]:
        """Read all folders and compare them with their branches, in the table's order.  Writes nothing."""
        known = frozenset(self._lake.repositories())
        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(lambda row: self._prepare(row, known), rows))

    def put(self, prepared: Sequence[RowPut], message: str | None) -> Iterator[RowPut]:
        """Put the prepared rows, and yield each one as it ends.  Rows that have failed before are left out."""
        by_repository: dict[str, list[RowPut]] = {}
        for one in prepared:
            if not one.error:
                by_repository.setdefault(one.row.target.repository, []).append(one)
        with ThreadPoolExecutor(self._jobs) as pool:
            groups = [pool.submit(self._put_group, group, message) for group in by_repository.values()]
            try:
                for group in as_completed(groups):
                    yield from group.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _prepare(self, row: PutRow, known: frozenset[str]) -> RowPut:
        target = row.target
        create = ["perago", "put", target.repository, str(row.folder), "--create", *self._options]
        try:
            files = read_folder(self._lake, target, row.folder, leave_out=self._leave_out)
            if self._create and target.repository not in known:
                if target.branch != "main":
                    raise RuntimeConfigError("a new repository has only the branch main")
                return RowPut(row, files)
            branch = ["perago", "branch", target.repository, target.branch, *self._options]
            remedy = (shlex.join(create), shlex.join(branch))
            with suggesting_existing_names(self._lake, target.repository, target.branch, remedy=remedy):
                return RowPut(row, files, plan_put(self._lake, target, files))
        except PeragoError as error:
            return RowPut(row, error=str(error))

    def _put_group(self, group: Sequence[RowPut], message: str | None) -> list[RowPut]:
        return [self._put(one, message) for one in group]

    def _put(self, one: RowPut, message: str | None) -> RowPut:
        row = one.row
        try:
            plan = one.plan or self._plan_in_new_repository(one)
            commit = plan.head
            if plan:
                put = FolderPut(self._lake, row.target, one.files, self._new_branches())
                commit, plan = put.publish(plan, message or f"put of {row.folder}", lambda *_: nullcontext())
            return replace(one, plan=plan, commit=commit)
        except PeragoError as error:
            return replace(one, error=str(error))

    def _plan_in_new_repository(self, one: RowPut) -> PutPlan:
        # An earlier row, or someone else, may have created it meanwhile.
        with suppress(LakeConflict):
            self._lake.create_repository(one.row.target.repository)
        return plan_put(self._lake, one.row.target, one.files)


def failure_groups(done: Sequence[RowPut]) -> dict[str, list[RowPut]]:
    """Return the failed rows by reason, where the same reason about another repository or folder is the same."""
    found: dict[str, list[RowPut]] = {}
    names: dict[str, str] = {}
    for one in done:
        if one.error:
            alike = one.error.replace(str(one.row.folder), "FOLDER").replace(
                one.row.target.repository, "REPO"
            )
            found.setdefault(names.setdefault(alike, one.error), []).append(one)
    return found
