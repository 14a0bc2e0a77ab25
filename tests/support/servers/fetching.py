"""Downloads of a real lakeFS, as tests of its transfers make them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from perago.lake.base import Download
from perago.lake.lakefs.lake import LakeFSLake
from perago.protocol.attempt import Attempt
from tests.support.worlds.lake_work import Work

ATTEMPT = Attempt("wf", "task", "step", "make", retry_count=0, seq=1, iteration=0)


MIB = 1024 * 1024


OBJECT = r"GET /test-[^/?]+/[^/?]+/"


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def fetch(lake: LakeFSLake, work: Work, commit: str, folder: Path) -> dict[str, bytes]:
    """Download everything at a commit into a new folder; checks what `download` says of it."""
    folder.mkdir()
    entries = list(lake.list(work.repository, commit, ""))
    files = [Download(entry, folder / f"{number}") for number, entry in enumerate(entries)]
    checksums = lake.download(work.repository, commit, files)
    found = {file.entry.path: file.target.read_bytes() for file in files}
    assert checksums == {path: md5(data) for path, data in found.items()}
    assert len(list(folder.iterdir())) == len(files)
    return found
