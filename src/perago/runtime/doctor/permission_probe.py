"""Probes what the keys allow in a repository.  Uses two scratch branches, which are always dropped.

No other branch is ever written to, so merging into the target branch itself is not probed.  Neither are tags, since a
worker's keys need not be able to remove them.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perago.errors import LakeError
from perago.lake.base import FenceLevel, Merge, PublishingLake, Upload
from perago.protocol.metadata import KEY

OBJECT = "perago-doctor/scratch.txt"
DROPPED = "drop a branch"
_SIGNED = {KEY: "perago-doctor"}
"""Metadata of the scratch commits.

No workflow step has this key, so no retry mistakes a scratch commit for its own.
"""
_SECONDS = 30.0

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ProbedOperation:
    """One operation that a worker performs, the lakeFS permissions it needs, and its error if it failed."""

    what: str
    permissions: str
    error: LakeError | None = None
    for_replacing: bool = False
    """True if the operation is needed only to replace an abandoned publication."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a permission probe: the operations that were tried, and the fence level.

    `level` is the fence level of a commit that contains the fence files, or None if it could not be determined.
    """

    operations: tuple[ProbedOperation, ...]
    level: FenceLevel | None = None
    fence_gap: str = ""


@dataclass(slots=True)
class PermissionProbe:
    """A single permission probe.

    `names` are the names of its two scratch branches, and `head` is the commit that they start from.
    """

    lake: PublishingLake
    repository: str
    head: str
    names: tuple[str, str]
    files: Mapping[str, bytes]
    """Files that a commit must contain for the lake to fence merges from it."""
    _operations: list[ProbedOperation] = field(default_factory=list)
    _committed: str = ""
    _merged: str = ""

    def examine(self) -> ProbeResult:
        """Try the operations in order, skipping those that cannot work after an earlier failure."""
        source, target = self.names
        level: FenceLevel | None = None
        fence_gap = ""
        try:
            if self._try("make a branch", "fs:CreateBranch", self._make):
                if self._try("write objects", "fs:WriteObject", self._write):
                    self._try("read objects", "fs:ReadObject, fs:ListObjects", self._read)
                    if self._try("commit", "fs:CreateCommit", self._commit):
                        level = self._level()
                        fence_gap = self._fence_gap() if level == "soft" else ""
                        if self._try("merge", "fs:CreateCommit on the target branch", self._merge):
                            self._try("reset a branch", "fs:RevertBranch", self._reset, for_replacing=True)
                self._try("delete objects", "fs:DeleteObject", self._delete)
        finally:
            for name in (source, target):
                self._drop(name)
        return ProbeResult(tuple(self._operations), level, fence_gap)

    def _try(self, what: str, permissions: str, step: Step, *, for_replacing: bool = False) -> bool:
        try:
            step()
        except LakeError as error:
            self._operations.append(ProbedOperation(what, permissions, error, for_replacing))
            return False
        except OSError as error:
            # This machine's disk failed: uploads are written to a file first.
            local = LakeError(f"a temporary file could not be written: {error.strerror}")
            self._operations.append(ProbedOperation(what, permissions, local, for_replacing))
            return False
        self._operations.append(ProbedOperation(what, permissions))
        return True

    def _make(self) -> None:
        for name in self.names:
            self.lake.create_branch(self.repository, name, self.head)

    def _write(self) -> None:
        with tempfile.TemporaryDirectory(prefix="perago-doctor-") as folder:
            # Use content that the branch does not have yet, so that there is something to commit.
            contents = {OBJECT: self.names[0].encode(), **self.files}
            uploads = list(_uploads(Path(folder), contents, self.lake.checksum_algorithm))
            self.lake.upload(self.repository, self.names[0], uploads)

    def _read(self) -> None:
        found = b"".join(self.lake.read(self.repository, self.names[0], OBJECT))
        listed = [entry.path for entry in self.lake.list(self.repository, self.names[0], "perago-doctor/")]
        if found != self.names[0].encode() or OBJECT not in listed:
            raise LakeError(f"the object {OBJECT!r} does not come back as it was written")

    def _commit(self) -> None:
        self._committed = self.lake.commit(self.repository, self.names[0], "Perago doctor: scratch", _SIGNED)

    def _merge(self) -> None:
        source, target = self.names
        merge = Merge(source, target, self.head, "Perago doctor: scratch", _SIGNED, _SECONDS)
        self._merged = self.lake.merge(self.repository, merge)

    def _reset(self) -> None:
        source, target = self.names
        self.lake.relocate(self.repository, target, source, self._merged, _SECONDS)

    def _delete(self) -> None:
        self.lake.delete(self.repository, self.names[0], [OBJECT])

    def _level(self) -> FenceLevel | None:
        try:
            return self.lake.fence_level(self.repository, self._committed)
        except LakeError:
            return None

    def _fence_gap(self) -> str:
        try:
            return self.lake.fence_gap(self.repository, self._committed, self.names[1])
        except LakeError as error:
            return str(error)

    def _drop(self, name: str) -> None:
        # Drop the branch even if the create call got no answer: it may exist.
        try:
            self.lake.drop_branch(self.repository, name)
        except LakeError as error:
            self._operations.append(ProbedOperation(f"{DROPPED}: {name}", "fs:DeleteBranch", error))


def _uploads(folder: Path, contents: Mapping[str, bytes], algorithm: str) -> Iterator[Upload]:
    for number, (path, data) in enumerate(contents.items()):
        file = folder / str(number)
        file.write_bytes(data)
        yield Upload(file, path, len(data), hashlib.new(algorithm, data).hexdigest())


def failures(operations: Sequence[ProbedOperation]) -> list[ProbedOperation]:
    """Return the operations that failed."""
    return [one for one in operations if one.error is not None]
