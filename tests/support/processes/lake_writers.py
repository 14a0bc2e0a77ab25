"""Writers that tests of the embedded lake run in other processes, which import this module."""

from __future__ import annotations

import hashlib
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from perago.errors import HeadMoved
from perago.lake.base import Merge, Upload
from perago.lake.local.lake import LocalLake

REPOSITORY = "written"


def upload_of(folder: Path, path: str, data: bytes) -> Upload:
    """Return an upload of these bytes, from a new file."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / hashlib.sha256(path.encode()).hexdigest()
    source.write_bytes(data)
    return Upload(source, path, len(data), hashlib.sha256(data).hexdigest())


def publish(lake: LocalLake, upload: Upload, branch: str, head: str) -> str:
    """Stage a file on `head` and merge it, as an attempt does; returns the merge commit."""
    lake.create_branch(REPOSITORY, branch, head)
    try:
        lake.upload(REPOSITORY, branch, [upload])
        lake.commit(REPOSITORY, branch, "stage", {"perago.phase": "try"})
        return lake.merge(REPOSITORY, Merge(branch, "main", head, upload.path, {"path": upload.path}, 60))
    finally:
        lake.drop_branch(REPOSITORY, branch)


def write_until_killed(lake_folder: Path, scratch: Path, run: int, acknowledged: Connection) -> None:
    """Commit to main and publish by merge, in turns; send each acknowledged commit's id to a pipe."""
    lake = LocalLake(lake_folder)
    for number in count():
        # Every third object is large enough to be stored as a file.
        data = b"%d/%d " % (run, number) * (5000 if number % 3 == 0 else 1)
        upload = upload_of(scratch, f"run-{run % 10}/file-{number % 20}", data)
        if number % 2:
            made = publish(lake, upload, f"run-{run}-{number}", lake.head(REPOSITORY, "main").id)
        else:
            lake.upload(REPOSITORY, "main", [upload])
            made = lake.commit(REPOSITORY, "main", "direct", {"path": upload.path})
        acknowledged.send_bytes(f"{made} {upload.path} {upload.checksum}".encode())


def publish_many(lake_folder: Path, scratch: Path, writer: int, files: int) -> None:
    """Publish that many files, each on the newest head; retry when another writer was first."""
    lake = LocalLake(lake_folder)
    landed = []
    tries = count()
    for number in range(files):
        upload = upload_of(scratch / str(writer), f"by-{writer}/{number}", b"%d %d" % (writer, number))
        while True:
            head = lake.head(REPOSITORY, "main").id
            try:
                landed.append(publish(lake, upload, f"writer-{writer}-{next(tries)}", head))
                break
            except HeadMoved:
                continue
    lake.close()
    (scratch / f"landed-{writer}").write_text("\n".join(landed))
