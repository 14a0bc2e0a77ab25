"""A lake for tests: one repository in an embedded lake, and the files that tests write to it and read from it.

Paths are checked before anything is written, so a mistake in a test is a one-line error and touches no file outside the
lake's folder.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.errors import TrialError
from perago.lake.base import Commit, Lake, ReadableLake, StagingLake, Upload
from perago.protocol.attempt import Attempt
from perago.protocol.changes import FileState, changes_between
from perago.protocol.metadata import KEY
from perago.protocol.names import REPLACED
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
from perago.protocol.publication import StagedWorkspace, Workspace
from perago.protocol.signing import Signature
from perago.runtime.attempt.workdir import hash_file
from perago.testing.results import Changes, TrialCommit

Files = Mapping[str, str | bytes]
"""File contents, keyed by path. Text is written as UTF-8."""

_NO_PATH = (
    (is_empty, "it is empty"),
    (is_absolute, "it begins with '/'"),
    (has_empty_part, "it has an empty part"),
    (either(has_dot_part, leads_out), "it has a part '.' or '..'"),
    (has_nul, "it holds a NUL character"),
)


def checked_files(files: Any, *, what: str = "files") -> Files:
    """Validate and return the files passed by a test. Raises a one-line `TrialError` if they are invalid."""
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
def uploads_of(lake: ReadableLake, files: Files, *, folder: Path) -> Iterator[list[Upload]]:
    """Write the contents to files in `folder`, yield them as uploads, and remove the files afterwards."""
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
    lake: StagingLake, repository: str, branch: str, files: Mapping[str, str | bytes | None], *, folder: Path
) -> None:
    """Write files to a branch without committing them. None as the content deletes a file.

    The contents are first written to `folder`, and uploaded from there.
    """
    written = {path: content for path, content in files.items() if content is not None}
    with uploads_of(lake, written, folder=folder) as uploads:
        lake.upload(repository, branch, uploads)
    lake.delete(repository, branch, [path for path, content in files.items() if content is None])


def read_objects(lake: ReadableLake, repository: str, ref: str, prefix: str = "") -> dict[str, bytes]:
    """Return every object below a prefix, keyed by path relative to it."""
    return {
        entry.path.removeprefix(prefix): b"".join(lake.read(repository, ref, entry.path))
        for entry in lake.list(repository, ref, prefix)
    }


REPOSITORY = "trial"
MAIN = "main"
_LONGEST_HISTORY = 1000


class TrialLake:
    """A repository with a `main` branch, in a folder that is removed after the test."""

    def __init__(self, lake: Lake, folder: Path, repository: str = REPOSITORY) -> None:
        self._lake = lake
        self._folder = folder
        self._repository = repository

    def create(self, files: Files) -> None:
        """Create the repository with these files in its first commit."""
        with uploads_of(self._lake, files, folder=self._folder) as uploads:
            self._lake.create_repository(self._repository, uploads, "the files of the trial")

    @property
    def repository(self) -> str:
        """The repository's name."""
        return self._repository

    def commit(
        self, files: Files, *, delete: Sequence[str] = (), branch: str = MAIN, by: str | None = None
    ) -> str:
        """Commit files to a branch, and return the commit's id. Paths are relative to the repository.

        Args:
            files: The files to write, as str or bytes keyed by path.
            delete: Paths to remove.
            branch: The branch to commit to. It must exist.
            by: The name of the task that appears to have published the commit, in another workflow. Without it, the
                commit is unsigned.
        """
        changed: dict[str, str | bytes | None] = dict(checked_files(files))
        changed.update(dict.fromkeys(delete))
        if not changed:
            raise TrialError("there is nothing to commit: give files, or paths to delete")
        return self.change(changed, branch=branch, by=by)

    def change(
        self, files: Mapping[str, str | bytes | None], *, branch: str = MAIN, by: str | None = None
    ) -> str:
        """Commit changes, given as file contents keyed by path. None deletes a file. Returns the commit's id."""
        head = self.head(branch)
        put_objects(self._lake, self._repository, branch, files, folder=self._folder)
        message = "a commit by hand" if by is None else f"a publication of {by}"
        return self._lake.commit(
            self._repository, branch, message, {} if by is None else self._signed(by, branch, head)
        )

    def create_branch(self, name: str, *, source: str = MAIN) -> None:
        """Create a branch at the head of another branch, or at a commit."""
        self._lake.create_branch(self._repository, name, source, hidden=False)

    def workspace(self, branch: str = MAIN) -> dict[str, str]:
        """Return a `workspace` input that makes a workflow start from the current head of a branch."""
        return {
            "repository": self._repository,
            "branch": branch,
            "ref_type": "commit",
            "ref": self.head(branch),
        }

    def head(self, branch: str = MAIN) -> str:
        """Return the id of a branch's head."""
        return self._lake.head(self._repository, branch).id

    def files(self, ref: str = MAIN, *, prefix: str = "") -> dict[str, bytes]:
        """Return the files in a branch or commit, keyed by path.

        With a prefix such as `clean/`, only the files below it are returned, keyed by path relative to it.
        """
        return read_objects(self._lake, self._repository, ref, prefix)

    def history(self, ref: str = MAIN) -> tuple[TrialCommit, ...]:
        """Return the commits on a branch, newest first."""
        return tuple(map(_shown, self._lake.log(self._repository, ref, _LONGEST_HISTORY)))

    def replaced(self) -> tuple[TrialCommit, ...]:
        """Return the commits that retries removed from a branch. A tag preserves each of them."""
        tags = self._lake.tags(self._repository, REPLACED)
        return tuple(_shown(self._lake.commit_at(self._repository, tag.commit)) for tag in tags)

    def changes(self, before: str, after: str, *, prefix: str = "") -> Changes:
        """Return the file changes between two refs."""
        found = changes_between(self._states(before, prefix), self._states(after, prefix))
        return Changes(tuple(sorted(found.put)), tuple(sorted(found.delete)))

    def is_by(self, commit: str, workflow_id: str) -> bool:
        """Return whether the commit was published by a step of this workflow."""
        found = self._lake.commit_at(self._repository, commit)
        return found.metadata.get(KEY, "").startswith(f"{workflow_id}/")

    def _states(self, ref: str, prefix: str) -> dict[str, FileState]:
        listed = self._lake.list(self._repository, ref, prefix)
        return {one.path.removeprefix(prefix): FileState(one.size, one.checksum) for one in listed}

    def _signed(self, task: str, branch: str, head: str) -> dict[str, str]:
        """Return commit metadata as if the commit had been published by a step in another workflow."""
        attempt = Attempt(
            "another-workflow", f"a-task-of-{task}", task, task, retry_count=0, seq=1, iteration=0
        )
        workspace = Workspace(self._repository, branch, head, "")
        staged = StagedWorkspace(self._repository, "", "")
        return Signature(attempt, "another-execution", workspace, "").publication(
            staged, expected_head=head, supersedes="", fence="hard"
        )


def _shown(commit: Commit) -> TrialCommit:
    return TrialCommit(commit.id, commit.message, commit.metadata.get(KEY, "").partition("/")[2])
