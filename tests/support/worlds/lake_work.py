"""The few moves on a lake that most of its tests are made of."""

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


@dataclass(frozen=True, slots=True)
class Work:
    """The few moves most tests are made of, on one repository."""

    lake: Lake
    repository: str
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def a_file(self, data: bytes) -> Path:
        """A new file with these bytes."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"file-{next(self.numbers)}"
        file.write_bytes(data)
        return file

    def an_upload(self, path: str, data: bytes) -> Upload:
        """An upload of these bytes."""
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
        """A hidden branch at `source` with one commit on it."""
        self.lake.create_branch(self.repository, name, source)
        return self.commit(name, objects)

    def merge(self, source: str, expected_head: str) -> str:
        """Publish a branch on `main`."""
        wanted = Merge(source, "main", expected_head, "publish", {"perago.logical_task_key": "wf/step"}, 30)
        return self.lake.merge(self.repository, wanted)

    def head(self, branch: str = "main") -> str:
        """The id of a branch's head."""
        return self.lake.head(self.repository, branch).id

    def paths(self, ref: str, prefix: str = "") -> list[str]:
        """The listing's paths."""
        return [entry.path for entry in self.lake.list(self.repository, ref, prefix)]

    def bytes_at(self, ref: str, path: str) -> bytes:
        """One object's bytes."""
        return b"".join(self.lake.read(self.repository, ref, path))

    def contents(self, ref: str) -> dict[str, bytes]:
        """Every object's bytes."""
        return {path: self.bytes_at(ref, path) for path in self.paths(ref)}


def at_once(calls: int, call: Callable[[int], object]) -> list[object]:
    """The results or errors of that many calls that start together."""
    start = threading.Barrier(calls)

    def run(number: int) -> object:
        start.wait()
        try:
            return call(number)
        except LakeError as error:
            return error

    with ThreadPoolExecutor(calls) as pool:
        return list(pool.map(run, range(calls)))
