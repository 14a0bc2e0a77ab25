"""The lakeFS lake under test: the only place that constructs one, and downloads from it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perago.lake.base import Download
from perago.protocol.attempt import Attempt
from tests.support.worlds.lake_work import Work

if TYPE_CHECKING:
    from perago.lake.lakefs.lake import LakeFSLake

OpenLakeFS = Callable[..., "LakeFSLake"]
"""Takes the `url` and the options of `lakefs_lake`; the fixture that provides it closes what it opens."""
WITHOUT_WAITING: dict[str, Any] = {"sleep": lambda _: None, "random": random.Random(1)}
"""Options of a lake that does not wait between retries."""


class Server(Protocol):
    """The address of a lakeFS, and the keys to it."""

    @property
    def url(self) -> str:
        """The server's root."""

    @property
    def access_key_id(self) -> str:
        """The key's id."""

    @property
    def secret_access_key(self) -> str:
        """The key."""


def lakefs_lake(
    server: Server,
    cache: Path,
    *,
    url: str | None = None,
    cache_bytes: int = 10**9,
    transfer: Any = "auto",
    **options: Any,
) -> LakeFSLake:
    """Return a lake on a server, or on a proxy before it at `url`; `options` are those of its client."""
    # Imported here because a run without servers does not need the adapter's libraries.
    from perago.lake.lakefs.client import Options
    from perago.lake.lakefs.lake import LakeFSLake

    return LakeFSLake(
        url or server.url,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        cache_dir=cache,
        cache_bytes=cache_bytes,
        transfer=transfer,
        options=Options(**options),
    )


# --- downloads ---------------------------------------------------------------------------------------------------------


ATTEMPT = Attempt("wf", "task", "step", "make", retry_count=0, seq=1, iteration=0)


MIB = 1024 * 1024


OBJECT = r"GET /test-[^/?]+/[^/?]+/"


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def fetch(lake: LakeFSLake, work: Work, commit: str, folder: Path) -> dict[str, bytes]:
    """Download everything at a commit into a new folder, and check the checksums that `download` returns."""
    folder.mkdir()
    entries = list(lake.list(work.repository, commit, ""))
    files = [Download(entry, folder / f"{number}") for number, entry in enumerate(entries)]
    checksums = lake.download(work.repository, commit, files)
    found = {file.entry.path: file.target.read_bytes() for file in files}
    assert checksums == {path: md5(data) for path, data in found.items()}
    assert len(list(folder.iterdir())) == len(files)
    return found
