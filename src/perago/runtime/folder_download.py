"""Downloads a folder of one commit to disk, for tools that know nothing of the lake.

The folder appears whole or not at all, and existing files are never overwritten.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from perago.errors import LakeNotFound, RuntimeConfigError
from perago.lake.base import Download, Entry, Progress, ReadableLake, Upload
from perago.protocol.changes import check_projection, workdir_path
from perago.runtime.lake_lookup import describe_empty_folder
from perago.runtime.whole_folder import whole_folder

ShowProgress = Callable[[str, list[Upload]], AbstractContextManager[Progress | None]]


@dataclass(frozen=True, slots=True)
class DownloadedFolder:
    """The commit that a folder was read from, and the folder's files and bytes."""

    commit: str
    files: int
    size: int


def download_folder(
    lake: ReadableLake, repository: str, ref: str, prefix: str, target: Path, *, show_progress: ShowProgress
) -> DownloadedFolder:
    """Download the objects below `prefix` (which ends in `/` or is empty) to the new folder `target`.

    Raises `RuntimeConfigError` if the folder has files or cannot be written, and `LakeNotFound` if there are no objects.
    """
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise RuntimeConfigError(
            f"{target} exists already and is not an empty folder: name another with -o, or remove it first"
        )
    commit = lake.commit_at(repository, ref).id
    objects = _objects(lake, repository, commit, prefix)
    if not objects:
        raise _nothing(lake, repository, ref, prefix)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as folder:
            _write(lake, repository, commit, objects, folder, show_progress)
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot write {target}: {error.strerror or error}; name a folder with -o that you may write to"
        ) from error
    return DownloadedFolder(commit, len(objects), sum(entry.size for entry in objects.values()))


def _nothing(lake: ReadableLake, repository: str, ref: str, prefix: str) -> Exception:
    path = prefix.rstrip("/")
    try:
        lake.stat(repository, ref, path)
    except LakeNotFound:
        return LakeNotFound(describe_empty_folder(lake, repository, ref, prefix))
    name = shlex.quote(path.rpartition("/")[2])
    command = f"perago cat {shlex.join([f'{repository}@{ref}', path])} > {name}"
    return RuntimeConfigError(
        f"{path!r} is an object at {ref} of repository {repository!r}, not a folder: `{command}`"
    )


def _objects(lake: ReadableLake, repository: str, commit: str, prefix: str) -> dict[str, Entry]:
    """Return the objects by their path below the prefix, without folder markers and lakeFS's actions."""
    found = {}
    for entry in lake.list(repository, commit, prefix):
        path = workdir_path(entry.path, entry.size, prefix)
        if path is not None:
            found[path] = entry
    return found


def _write(
    lake: ReadableLake,
    repository: str,
    commit: str,
    objects: dict[str, Entry],
    folder: Path,
    show_progress: ShowProgress,
) -> None:
    case = folder / "a"
    case.touch()
    folds_case = (folder / "A").exists()
    case.unlink()
    check_projection(objects, folds_case=folds_case)
    for inner in {path.rpartition("/")[0] for path in objects} - {""}:
        (folder / inner).mkdir(parents=True, exist_ok=True)
    files = [Download(entry, folder / path) for path, entry in objects.items()]
    shown = [Upload(one.target, one.entry.path, one.entry.size, "") for one in files]
    with show_progress(f"get {repository}", shown) as progress:
        lake.download(repository, commit, files, progress)
