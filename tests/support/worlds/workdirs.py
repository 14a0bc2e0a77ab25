"""Workdirs with a commit of a test's own in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perago.protocol.attempt import Attempt
from perago.protocol.changes import changes_between
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir
from tests.support.worlds.lake_work import Work

ATTEMPT = Attempt("wf-1", "11111111-2222-3333-4444-555555555555", "step", "make", 2, 3, 0)


def filled(
    work: Work, root: Path, objects: dict[str, bytes], *, prefix: str = ""
) -> tuple[Workdir, Workspace]:
    """A workdir that holds these objects."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, prefix)
    workdir = Workdir.create(root, ATTEMPT, "e1", now=1_700_000_000.0)
    workdir.fill(work.lake, workspace)
    return workdir, workspace


def changed(
    work: Work, root: Path, objects: dict[str, bytes], body: Callable[[Path], object]
) -> tuple[set, set]:
    """What a body changes: (put, deleted)."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, "")
    workdir = Workdir.create(root, ATTEMPT, "e1", now=0)
    base = workdir.fill(work.lake, workspace)
    body(workdir.path)
    changes = changes_between(base.states(), workdir.result(work.lake, workspace))
    workdir.drop()
    return set(changes.put), set(changes.delete)
