"""Where Spark tasks work: the factory of places, and the local one (`direct` has the other)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from perago.declare.checks import Check, Tree
from perago.declare.task import TaskDefinition
from perago.runtime.attempt.place import Place, Site, WorkdirPlace, in_workdir
from perago.runtime.attempt.result import Result
from perago.settings import LakeFSSettings, Settings
from perago.spark.audit import AuditedTree, Auditor
from perago.spark.job_group import at_work
from perago.spark.kept_files import check_kept_files
from perago.spark.paths import is_leftover
from perago.spark.placement import placement_of
from perago.spark.s3a import S3A_PACKAGES
from perago.spark.session import AttemptSession, Sessions
from perago.spark.workspace import SparkWorkspace


def spark_places(settings: Settings, tasks: Iterable[TaskDefinition], *, embedded: bool) -> SparkPlaces:
    """The places of these tasks; the session can reach a lake by s3a only where one of them works there."""
    spark_tasks = [task for task in tasks if task.kind == "spark"]
    direct = any(placement_of(task, settings, embedded=embedded) == "direct" for task in spark_tasks)
    sessions = Sessions(settings, S3A_PACKAGES) if direct else Sessions(settings)
    return SparkPlaces(settings, sessions, embedded)


@dataclass(frozen=True, slots=True)
class SparkPlaces:
    """Opens the place of any task: a plain one's workdir, or where a Spark task's placement says."""

    settings: Settings
    sessions: Sessions
    embedded: bool

    def __call__(self, site: Site) -> Place:
        """The place for one execution."""
        if site.task.kind != "spark":
            return in_workdir(site)
        self.sessions.warm_up()
        if placement_of(site.task, self.settings, embedded=self.embedded) == "local":
            return LocalPlace(site, self.sessions)
        from perago.spark.branch_place import DirectPlace

        return DirectPlace(site, self.sessions, self._lakefs)

    @property
    def _lakefs(self) -> LakeFSSettings:
        assert self.settings.lakefs is not None  # noqa: S101 - `check_placement` has seen to it
        return self.settings.lakefs


class LocalPlace(WorkdirPlace):
    """Tables in the workdir; Perago moves the files, and what Spark leaves beside them stays behind."""

    def __init__(self, site: Site, sessions: Sessions) -> None:
        super().__init__(site, self._is_left)
        self._session = AttemptSession(sessions)
        self._workspace = SparkWorkspace(site.workdir.path, self._session, view=site.workspace.view)

    def _is_left(self, path: str) -> bool:
        return is_leftover(path, self._size_of(path) or 0, self._size_of)

    def _size_of(self, path: str) -> int | None:
        try:
            return (self._site.workdir.path / path).stat().st_size
        except OSError:
            return None

    @property
    def argument(self) -> object:
        """The workspace over the folder."""
        return self._workspace

    def result(self, recorded: str | None) -> Result:
        """What the folder holds; new files that would make a table unreadable are refused."""
        result = super().result(recorded)
        check_kept_files(self._session(), self._workspace.base, result.changes, result.states)
        return result

    def at_work(self) -> AbstractContextManager[None]:
        """A job group of the attempt's own."""
        return at_work(self._session, self._site, self._workspace)

    def tree(self, checks: Sequence[Check]) -> Tree:
        """The folder, whose tables can be looked into."""
        auditor = Auditor(self._workspace, self._session.for_checks, checks)
        return AuditedTree(super().tree(checks), auditor)
