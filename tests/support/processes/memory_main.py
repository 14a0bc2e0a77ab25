"""A process that fills a workdir from a server's listing, reads its result, and prints how much its memory grew.

`test_memory` runs it, because the peak memory of a process never falls again.  Object bytes come from the cache: all
objects are empty, but their checksums and paths are separate strings, as in any listing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from perago.lake.lakefs.cache.cache import Cache, ObjectKey, repository_id
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir
from tests.support.servers.lakefs import lakefs_lake

ATTEMPT = Attempt("wf", "task", "step", "make", retry_count=0, seq=1, iteration=0)
EMPTY = hashlib.md5(b"", usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Keyless:
    """A server that accepts any keys."""

    url: str
    access_key_id: str = "id"
    secret_access_key: str = "key"


def peak_kib() -> int:
    """Return the peak memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main(url: str, folder: Path) -> None:
    """List, download, index, scan."""
    cache = Cache(folder / "cache", 10**9)
    (folder / "empty").touch()
    key = ObjectKey(repository_id(url, "repo"), EMPTY, 0)
    cache.reserve({key.name: 0})
    cache.put_in(key, str(folder / "empty"))
    cache.close()
    with lakefs_lake(Keyless(url), folder / "cache") as lake:
        # Idle: a process that has made its first connection.
        lake.repositories()
        before = peak_kib()
        workspace = Workspace("repo", "main", "c" * 64, "plays/")
        workdir = Workdir.create(folder, ATTEMPT, "0" * 16, now=0)
        listing = workdir.fill(lake, workspace)
        listed = peak_kib()
        states = workdir.result(lake, workspace)
        changes = states.changes()
        print(
            json.dumps(
                {
                    "objects": len(listing.files),
                    "states": len(states),
                    "changes": bool(changes),
                    "filled_kib": listed - before,
                    "grown_kib": peak_kib() - before,
                }
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
