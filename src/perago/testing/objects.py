"""Files of a test as objects of a lake: from what a test writes down to a branch, and back.

The rule: a path is checked before a byte is written, so that a slip in a test is one line and touches no file outside.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.errors import TrialError
from perago.lake.base import Lake, Upload
from perago.protocol.paths import (
    either,
    first_broken,
    has_dot_part,
    has_empty_part,
    has_nul,
    is_absolute,
    is_empty,
    leads_out,
)
from perago.runtime.attempt.workdir import hash_file

Files = Mapping[str, str | bytes]
"""Contents by path; text is written as UTF-8."""

_NO_PATH = (
    (is_empty, "it is empty"),
    (is_absolute, "it begins with '/'"),
    (has_empty_part, "it has an empty part"),
    (either(has_dot_part, leads_out), "it has a part '.' or '..'"),
    (has_nul, "it holds a NUL character"),
)


def checked_files(files: Any, *, what: str = "files") -> Files:
    """The files of a test, or one line that says what is wrong with them."""
    if not isinstance(files, Mapping):
        raise TrialError(
            f'{what} is {type(files).__name__}; give a dict of contents by path: {{"raw/monday.csv": "…"}}'
        )
    for path, content in files.items():
        wrong = first_broken(path, _NO_PATH) if isinstance(path, str) else "it is not a str"
        if wrong is not None:
            raise TrialError(
                f"{what} has the path {path!r}, and {wrong}; give a path such as 'raw/monday.csv'"
            )
        if not isinstance(content, str | bytes):
            raise TrialError(
                f"{what}[{path!r}] is {type(content).__name__}; give its content as str or bytes"
            )
    return files


@contextmanager
def uploads_of(lake: Lake, files: Files, *, folder: Path) -> Iterator[list[Upload]]:
    """Contents as uploads to a lake; `folder` is where their bytes are meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    uploads = []
    for path, content in files.items():
        source = folder / f"upload-{secrets.token_hex(8)}"
        source.write_bytes(content.encode() if isinstance(content, str) else content)
        state = hash_file(source, lake.checksum_algorithm)
        uploads.append(Upload(source, path, state.size, state.checksum or ""))
    yield uploads
    for upload in uploads:
        upload.source.unlink()


def put_objects(
    lake: Lake, repository: str, branch: str, files: Mapping[str, str | bytes | None], *, folder: Path
) -> None:
    """Put contents on a branch, uncommitted; None deletes.  `folder` is where the bytes pass through."""
    written = {path: content for path, content in files.items() if content is not None}
    with uploads_of(lake, written, folder=folder) as uploads:
        lake.upload(repository, branch, uploads)
    lake.delete(repository, branch, [path for path, content in files.items() if content is None])


def read_objects(lake: Lake, repository: str, ref: str, prefix: str = "") -> dict[str, bytes]:
    """Every object below a prefix, by path below it."""
    return {
        entry.path.removeprefix(prefix): b"".join(lake.read(repository, ref, entry.path))
        for entry in lake.list(repository, ref, prefix)
    }
