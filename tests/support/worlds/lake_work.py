"""The few calls on a lake that most of its tests are made of, and workdirs filled from it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from perago.errors import LakeError
from perago.lake.base import Lake, Merge, Upload
from perago.protocol.attempt import Attempt
from perago.protocol.changes import changes_between
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir


@dataclass(frozen=True, slots=True)
class Work:
    """Short forms of the calls that most tests make, on one repository."""

    lake: Lake
    repository: str
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def a_file(self, data: bytes) -> Path:
        """Create a file with these bytes."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"file-{next(self.numbers)}"
        file.write_bytes(data)
        return file

    def an_upload(self, path: str, data: bytes) -> Upload:
        """Return an upload of these bytes."""
        checksum = hashlib.new(self.lake.checksum_algorithm, data).hexdigest()
        return Upload(self.a_file(data), path, len(data), checksum)

    def put(self, branch: str, objects: Mapping[str, bytes]) -> None:
        """Upload objects, uncommitted."""
        self.lake.upload(
            self.repository, branch, [self.an_upload(path, data) for path, data in objects.items()]
        )

    def commit(self, branch: str, objects: Mapping[str, bytes]) -> str:
        """Upload objects and commit them."""
        self.put(branch, objects)
        return self.lake.commit(self.repository, branch, f"put {len(objects)}", {"made": "by a test"})

    def edit(self, branch: str, objects: Mapping[str, bytes | None]) -> str:
        """Upload objects, delete those that are None, and commit."""
        self.put(branch, {path: data for path, data in objects.items() if data is not None})
        self.lake.delete(self.repository, branch, [path for path, data in objects.items() if data is None])
        return self.lake.commit(self.repository, branch, f"edit {len(objects)}", {"made": "by a test"})

    def stage(self, name: str, source: str, objects: Mapping[str, bytes]) -> str:
        """Create a hidden branch at `source` with one commit on it; returns the commit."""
        self.lake.create_branch(self.repository, name, source)
        return self.commit(name, objects)

    def merge(self, source: str, expected_head: str) -> str:
        """Publish a branch on `main`."""
        wanted = Merge(source, "main", expected_head, "publish", {"perago.logical_task_key": "wf/step"}, 30)
        return self.lake.merge(self.repository, wanted)

    def head(self, branch: str = "main") -> str:
        """Return the id of a branch's head."""
        return self.lake.head(self.repository, branch).id

    def paths(self, ref: str, prefix: str = "") -> list[str]:
        """Return the paths of a listing."""
        return [entry.path for entry in self.lake.list(self.repository, ref, prefix)]

    def bytes_at(self, ref: str, path: str) -> bytes:
        """Return one object's bytes."""
        return b"".join(self.lake.read(self.repository, ref, path))

    def contents(self, ref: str) -> dict[str, bytes]:
        """Return every object's bytes, by path."""
        return {path: self.bytes_at(ref, path) for path in self.paths(ref)}


def at_once(calls: int, call: Callable[[int], object]) -> list[object]:
    """Start that many calls at once, and return their results or errors."""
    start = threading.Barrier(calls)

    def run(number: int) -> object:
        start.wait()
        try:
            return call(number)
        except LakeError as error:
            return error

    with ThreadPoolExecutor(calls) as pool:
        return list(pool.map(run, range(calls)))


# --- workdirs --------------------------------------------------------------------------------------------------------


ATTEMPT = Attempt("wf-1", "11111111-2222-3333-4444-555555555555", "step", "make", 2, 3, 0)


def filled_workdir(
    work: Work, root: Path, objects: dict[str, bytes], *, prefix: str = ""
) -> tuple[Workdir, Workspace]:
    """Return a workdir that holds these objects, and its workspace."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, prefix)
    workdir = Workdir.create(root, ATTEMPT, "e1", now=1_700_000_000.0)
    workdir.fill(work.lake, workspace)
    return workdir, workspace


def changes_by(
    work: Work, root: Path, objects: dict[str, bytes], body: Callable[[Path], object]
) -> tuple[set, set]:
    """Run a body in a workdir, and return the paths it put and those it deleted."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, "")
    workdir = Workdir.create(root, ATTEMPT, "e1", now=0)
    base = workdir.fill(work.lake, workspace)
    body(workdir.path)
    changes = changes_between(base.states(), workdir.result(work.lake, workspace))
    workdir.drop()
    return set(changes.put), set(changes.delete)
