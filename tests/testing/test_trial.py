"""`try_task`, as a task author uses it."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import PreGuardrailViolation, TaskDefinitionError, TaskInputError, WorkspaceSpec, task
from perago.declare.code_origin import provenance_of
from perago.lake.local.lake import LocalLake
from perago.protocol.provenance import Provenance
from perago.testing import Changes, TrialError, try_task
from tests.testing.tasks import Made, Params, Renamed, counting, fail, make, plain, renamed, talk, tidy


def test_a_trial_shows_result_and_published_files(tmp_path: Path) -> None:
    trial = try_task(make, {"in.txt": "a", "deep/b.bin": b"\x00"}, params={"text": "b"}, root=tmp_path)
    assert (trial.status, trial.result, trial.published) == ("COMPLETED", {"length": 1}, True)
    assert trial.files == {"in.txt": b"a", "out.txt": b"ab", "deep/b.bin": b"\x00"}


def test_a_trial_s_publication_says_which_code_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_IMAGE", "songs:1")

    try_task(make, {"in.txt": "a"}, params={"text": "b"}, root=tmp_path)

    [folder] = tmp_path.glob("*/lake")
    with closing(LocalLake(folder)) as lake:
        [repository] = lake.repositories()
        found = Provenance.of(lake.head(repository, "main").metadata)
    assert found == provenance_of(make.__perago_task__, "songs:1")
    assert found.code


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
    here, streams = os.getcwd(), (sys.stdout, sys.stderr)

    assert try_task(untidy, {"in.txt": "a"}, params={"text": "b"}, root=tmp_path).status == "COMPLETED"

    assert (os.getcwd(), os.environ.get("LEFT_BEHIND"), _LANGUAGE.get()) == (here, None, "en")
    assert (sys.stdout, sys.stderr) == streams


def test_wrong_params_fail_as_they_would_on_conductor(tmp_path: Path) -> None:
    trial = try_task(make, {"in.txt": "a"}, params={"text": 3}, root=tmp_path)
    assert trial.status == "FAILED"
    assert "params.text" in (trial.reason or "")
    assert isinstance(trial.error, TaskInputError)


def test_a_task_without_a_workspace_can_be_tried_too(tmp_path: Path) -> None:
    trial = try_task(plain, params={"text": "abc"}, root=tmp_path)
    assert (trial.status, trial.result, trial.published) == ("COMPLETED", {"length": 3}, False)


def test_two_trials_in_one_folder_know_nothing_of_each_other(tmp_path: Path) -> None:
    for text in ("b", "c"):
        assert (
            try_task(make, {"in.txt": "a"}, params={"text": text}, root=tmp_path).files["out.txt"]
            == b"a" + text.encode()
        )


def test_without_a_root_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert try_task(make, {"in.txt": "a"}).status == "COMPLETED"

    assert list(tmp_path.iterdir()) == []


def test_params_may_be_the_model_that_the_task_takes() -> None:
    assert try_task(make, {"in.txt": "a"}, params=Params(text="bc")).result == {"length": 2}
    assert try_task(renamed, params=Renamed(longName="abc")).result == {"length": 3}


def test_the_error_is_the_exception_that_the_body_raised() -> None:
    trial = try_task(fail, {"in.txt": "a"}, params={"text": "song"})

    assert isinstance(trial.error, KeyError)
    assert (trial.error.args, trial.status) == (("song",), "FAILED")
    assert (trial.files, trial.changes, trial.published) == ({"in.txt": b"a"}, Changes(), False)


def test_the_error_is_peragos_where_a_check_failed() -> None:
    assert isinstance(try_task(make, {}).error, PreGuardrailViolation)
    assert try_task(make, {"in.txt": ""}).error is None


def test_the_log_has_what_the_body_printed_and_logged_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    trial = try_task(talk, {"in.txt": "a"}, params={"text": "it"})

    expected = ("printed it", "to stderr", "INFO tasks: logged", "by its own handler", "without an end")
    assert trial.log == expected
    assert capsys.readouterr().out == "printed it\nwithout an end"


def test_the_changes_are_the_files_that_were_put_and_deleted() -> None:
    files = {"old.txt": "old", "same.txt": "same", "changed.txt": "before"}

    trial = try_task(tidy, files)

    assert trial.changes == Changes(put=("changed.txt", "new.txt"), deleted=("old.txt",))
    assert [commit.by for commit in trial.history] == ["trial", ""]


def test_retries_follow_as_the_task_allows_and_nobody_waits_for_them() -> None:
    trial = try_task(counting(fails=2, delay=86_400), {"in.txt": "a"}, retries=3)

    assert [attempt.status for attempt in trial.attempts] == ["FAILED", "FAILED", "COMPLETED"]
    assert [attempt.log for attempt in trial.attempts] == [("run 1",), ("run 2",), ("run 3",)]
    assert trial.attempts[0].reason == "run 1 fails"
    assert (trial.status, trial.result, trial.log) == (
        "COMPLETED",
        {"length": 3},
        ("run 1", "run 2", "run 3"),
    )


def test_without_retries_the_first_failure_is_the_end() -> None:
    trial = try_task(counting(fails=1), {"in.txt": "a"})

    assert (trial.status, len(trial.attempts)) == ("FAILED", 1)


def test_a_terminal_failure_is_not_retried() -> None:
    assert len(try_task(make, {}, retries=2).attempts) == 1


class Other(BaseModel):
    text: str = "other"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model of another kind": ({"params": Other()}, "params is a Other; task 'make' takes a Params"),
    "params that are none": ({"params": "text"}, "params is of type str; task 'make' takes a Params"),
    "files that are none": ({"files": ["in.txt"]}, "files is list; give a dict of contents by path"),
    "a path from the root": ({"files": {"/in.txt": ""}}, "begins with '/'"),
    "a path that leads out": ({"files": {"../in.txt": ""}}, "has a part '.' or '..'"),
    "content that is none": ({"files": {"in.txt": 3}}, "files['in.txt'] is int"),
    "more retries than allowed": ({"retries": 4}, "retries=4, but task 'make' allows 3"),
    "a negative number of retries": ({"retries": -1}, "retries=-1: give the number of retries"),
    "a fault without a step": ({"faults": "publish"}, "faults is str; give a dict"),
    "an unknown step": ({"faults": {"publsh": None}}, "an attempt has no such step; did you mean 'publish'?"),
    "an unknown fault": (
        {"faults": {"publish": "crash"}},
        "faults['publish'] is str; give crash(), lose_lease()",
    ),
}


@pytest.mark.parametrize("error", WRONG)
def test_wrong_use_is_told_in_one_line(error: str) -> None:
    given, expected = WRONG[error]

    with pytest.raises(TrialError) as told:
        try_task(make, **given)

    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_files_for_a_task_without_a_workspace_are_refused() -> None:
    with pytest.raises(TrialError, match="task 'plain' has no workspace"):
        try_task(plain, {"in.txt": "a"})


def test_a_function_that_is_no_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskDefinitionError, match="is not a task"):
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


def test_a_trial_may_contain_files_that_the_task_does_not_see(tmp_path: Path) -> None:
    files = {"in.txt": "a", "in.txt.bak": "b", "other/c.txt": "c"}

    trial = try_task(narrow, files, params={"text": "out/made.txt"}, root=tmp_path)
    wrong = try_task(narrow, files, params={"text": "other/c.txt"}, root=tmp_path)

    kept = {path: text.encode() for path, text in files.items()}
    assert (trial.result, trial.files) == ({"length": 1}, {**kept, "out/made.txt": b"in.txt"})
    assert (wrong.status, wrong.published, wrong.files) == ("FAILED", False, kept)
    assert "the task changed other/c.txt, outside what it may change (out)" in (wrong.reason or "")
