"""`perago.testing`, as a task author uses it."""

from __future__ import annotations

import os
from contextvars import ContextVar
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import TaskDefinitionError, WorkspaceSpec, require_file, task
from perago.testing import try_task


class Params(BaseModel):
    text: str


class Made(BaseModel):
    length: int


@task(
    name="make",
    owner_email="a@example.com",
    workspace=WorkspaceSpec(prefix="/data", pre=[require_file("in.txt")]),
)
def make(workspace: Path, params: Params) -> Made:
    (workspace / "out.txt").write_text((workspace / "in.txt").read_text() + params.text)
    return Made(length=len(params.text))


@task(name="plain", owner_email="a@example.com")
def plain(params: Params) -> Made:
    return Made(length=len(params.text))


def test_a_trial_shows_result_and_published_files(tmp_path: Path) -> None:
    trial = try_task(make, {"in.txt": "a", "deep/b.bin": b"\x00"}, params={"text": "b"}, root=tmp_path)
    assert (trial.status, trial.result, trial.published) == ("COMPLETED", {"length": 1}, True)
    assert trial.files == {"in.txt": b"a", "out.txt": b"ab", "deep/b.bin": b"\x00"}


def test_a_failing_trial_says_why_and_publishes_nothing(tmp_path: Path) -> None:
    trial = try_task(make, {}, params={"text": "b"}, root=tmp_path)
    assert (trial.status, trial.published, trial.files) == ("FAILED_WITH_TERMINAL_ERROR", False, {})
    assert "in.txt" in (trial.reason or "")


_LANGUAGE: ContextVar[str] = ContextVar("language", default="en")


@task(name="untidy", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"))
def untidy(workspace: Path, params: Params) -> Made:
    os.chdir(workspace)
    os.environ["LEFT_BEHIND"] = params.text
    _LANGUAGE.set("de")
    return Made(length=0)


def test_after_a_trial_the_process_is_as_before(tmp_path: Path) -> None:
    here = os.getcwd()

    assert try_task(untidy, {"in.txt": "a"}, params={"text": "b"}, root=tmp_path).status == "COMPLETED"

    assert (os.getcwd(), os.environ.get("LEFT_BEHIND"), _LANGUAGE.get()) == (here, None, "en")


def test_wrong_params_fail_as_they_would_on_conductor(tmp_path: Path) -> None:
    trial = try_task(make, {"in.txt": "a"}, params={"text": 3}, root=tmp_path)
    assert trial.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "params.text" in (trial.reason or "")


def test_a_task_without_a_workspace_can_be_tried_too(tmp_path: Path) -> None:
    trial = try_task(plain, params={"text": "abc"}, root=tmp_path)
    assert (trial.status, trial.result, trial.published) == ("COMPLETED", {"length": 3}, False)


def test_two_trials_in_one_folder_know_nothing_of_each_other(tmp_path: Path) -> None:
    for text in ("b", "c"):
        assert (
            try_task(make, {"in.txt": "a"}, params={"text": text}, root=tmp_path).files["out.txt"]
            == b"a" + text.encode()
        )


def test_a_function_that_is_no_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskDefinitionError, match="is no task"):
        try_task(len, params={}, root=tmp_path)


@task(
    name="narrow",
    owner_email="a@example.com",
    workspace=WorkspaceSpec(prefix="/data", reads=("in.txt",), writes=("out",)),
)
def narrow(workspace: Path, params: Params) -> Made:
    there = sorted(path.name for path in workspace.iterdir() if not path.name.startswith("."))
    (workspace / params.text).parent.mkdir(exist_ok=True)
    (workspace / params.text).write_text(",".join(there))
    return Made(length=len(there))


def test_a_narrow_task_is_tried_among_files_that_it_does_not_see(tmp_path: Path) -> None:
    files = {"in.txt": "a", "in.txt.bak": "b", "other/c.txt": "c"}

    trial = try_task(narrow, files, params={"text": "out/made.txt"}, root=tmp_path)
    wrong = try_task(narrow, files, params={"text": "other/c.txt"}, root=tmp_path)

    kept = {path: text.encode() for path, text in files.items()}
    assert (trial.result, trial.files) == ({"length": 1}, {**kept, "out/made.txt": b"in.txt"})
    assert (wrong.status, wrong.published, wrong.files) == ("FAILED", False, kept)
    assert "the task changed other/c.txt, outside what it may change (out)" in (wrong.reason or "")
