"""Hidden branches of the fence's own, on which it works and makes its proofs; none of them outlives its block."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from perago.lake.base import Lake, Merge, Upload
from perago.protocol.metadata import KEY
from perago.protocol.names import proof_branch_name

FENCE_KEY = "perago-fence"
"""The logical task key of fence commits: no workflow step has it, so no retry takes one for its own."""

SIGNED = {KEY: FENCE_KEY}
_TIMEOUT = 60.0


def new_side_name() -> str:
    """A name that nobody else makes."""
    return proof_branch_name(time.time(), uuid.uuid4().hex[:12])


class SideBranches:
    """Makes hidden branches in one lake, and puts text on them."""

    def __init__(self, lake: Lake, new_name: Callable[[], str] = new_side_name) -> None:
        self._lake = lake
        self._new_name = new_name

    @contextmanager
    def at(self, repository: str, commit: str) -> Iterator[str]:
        """A branch at a commit, for the length of the block."""
        name = self._new_name()
        self._lake.create_branch(repository, name, commit)
        try:
            yield name
        finally:
            self._lake.drop_branch(repository, name)

    def put(self, repository: str, branch: str, path: str, text: str) -> None:
        """An object on a branch, uncommitted."""
        data = text.encode()
        checksum = hashlib.new(self._lake.checksum_algorithm, data).hexdigest()
        with TemporaryDirectory(prefix="perago-fence-") as folder:
            file = Path(folder) / "object"
            file.write_bytes(data)
            self._lake.upload(repository, branch, [Upload(file, path, len(data), checksum)])


def signed_merge(source: str, target: str, expected_head: str, message: str) -> Merge:
    """A merge that no retry takes for a publication of its own."""
    return Merge(source, target, expected_head, message, SIGNED, _TIMEOUT)
