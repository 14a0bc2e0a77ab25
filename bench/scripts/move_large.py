"""Uploads or downloads one large file in a separate process, and prints how far its memory rose above the start."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from perago.lake.base import Download, Upload
from perago.lake.lakefs.lake import LakeFSLake


def peak() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmHWM in /proc/self/status")


def main() -> None:
    what = json.loads(sys.argv[1])
    lake = LakeFSLake(
        os.environ["LAKECTL_SERVER_ENDPOINT_URL"],
        access_key_id=os.environ["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
        cache_dir=Path(what["cache"]),
        cache_bytes=10**11,
    )
    repository, file = what["repository"], Path(what["file"])
    with lake:
        lake.head(repository, "main")
        if what["way"] == "up":
            with file.open("rb") as source:
                checksum = hashlib.file_digest(source, "md5").hexdigest()
            upload = Upload(file, "large.bin", file.stat().st_size, checksum)
            before, start = peak(), time.perf_counter()
            lake.upload(repository, "main", [upload])
        else:
            [entry] = lake.list(repository, "main", "large.bin")
            before, start = peak(), time.perf_counter()
            lake.download(repository, "main", [Download(entry, file)])
    print(json.dumps({"seconds": time.perf_counter() - start, "extra": peak() - before}))


main()
