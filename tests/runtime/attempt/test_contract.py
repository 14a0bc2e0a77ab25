"""An attempt's input on the wire: exactly the agreed fields, and A as a commit id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import task
from perago.declare.task import TaskDefinition
from perago.errors import (
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeUnavailable,
    TaskInputError,
    TaskResultError,
)
from perago.lake.local.lake import LocalLake
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.contract import check_size, read_input, workspace_output
from perago.runtime.attempt.workspace_join import start_of
from tests.support.faults.ports import recording, refusing
from tests.support.worlds.lake_work import Work
from tests.support.worlds.world import make_task

WORKSPACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "abc"}


class Params(BaseModel):
    stem: str
    count: int = 1


class Result(BaseModel):
    rows: int = 0


@task(name="plain", owner_email="tests@example.com")
def plain(params: Params) -> Result:
    return Result()


PLAIN: TaskDefinition = plain.__perago_task__
WITH_WORKSPACE = make_task()
ATTEMPT = Attempt("workflow", "task", "step", "make", 0, 1, 0)


def refusal(definition: TaskDefinition, payload: dict[str, Any]) -> str:
    with pytest.raises(TaskInputError) as caught:
        read_input(definition, payload)
    return str(caught.value)


class TestTopLevel:
    def test_a_task_with_a_workspace_takes_exactly_workspace_and_params(self) -> None:
        given = read_input(WITH_WORKSPACE, {"workspace": WORKSPACE, "params": {"text": "x"}})
        assert given.params.text == "x"  # type: ignore[attr-defined]
        assert (given.raw_params, given.workspaces) == ({"text": "x"}, (WORKSPACE,))

    def test_a_task_without_one_takes_exactly_params(self) -> None:
        given = read_input(PLAIN, {"params": {"stem": "x"}})
        assert given.params == Params(stem="x", count=1)
        assert (given.raw_params, given.workspaces) == ({"stem": "x"}, ())

    @pytest.mark.parametrize(
        ("definition", "payload", "texts"),
        [
            (
                WITH_WORKSPACE,
                {"params": {}},
                [
                    "missing: workspace",
                    'send the step\'s inputParameters as {"workspace": "${workflow.input.workspace}"',
                ],
            ),
            (WITH_WORKSPACE, {}, ["missing: workspace, params"]),
            (WITH_WORKSPACE, {"workspace": WORKSPACE, "params": {}, "more": 1}, ["not expected: more"]),
            (PLAIN, {"params": {"stem": "x"}, "workspace": WORKSPACE}, ["not expected: workspace"]),
            (PLAIN, {"parms": {}}, ["missing: params", "not expected: parms"]),
        ],
    )
    def test_anything_else_is_named(
        self, definition: TaskDefinition, payload: dict[str, Any], texts: list[str]
    ) -> None:
        said = refusal(definition, payload)
        assert "task input must have exactly" in said
        assert all(text in said for text in texts)

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({"stem": 3}, "params.stem"),
            ({}, "params.stem"),
            ({"stem": "x", "count": "7"}, "params.count"),
            ({"stem": "x", "extra": 1}, "params.extra"),
            (None, "params"),
            ([], "params"),
        ],
    )
    def test_params_are_read_strictly_and_the_field_is_named(self, params: object, text: str) -> None:
        assert text in refusal(PLAIN, {"params": params})


class TestWorkspace:
    @pytest.mark.parametrize("spelled", ["ref_type", "refType"])
    def test_both_spellings_are_accepted_and_answered_in_kind(self, spelled: str) -> None:
        given = {"repository": "songs", "branch": "main", spelled: "commit", "ref": "abc"}
        read = read_input(WITH_WORKSPACE, {"workspace": given, "params": {"text": "x"}})
        assert workspace_output(read.workspaces[0], "new") == {**given, "ref": "new"}

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"ref_type": "branch"}, "workspace.ref_type must be 'commit', not 'branch'"),
            ({"ref_type": "hunter2"}, "must be 'commit', not another string; send 'commit', or leave it out"),
            ({"refType": "commit"}, "not expected: refType"),
            ({"path": "/x"}, "not expected: path"),
            ({"ref": ""}, "workspace.ref must not be blank; send a commit id"),
            ({"repository": "\t"}, "workspace.repository must not be blank; send the repository's name"),
            ({"branch": None}, "workspace.branch must be a string, not null"),
            ({"ref": 7}, "workspace.ref must be a string, not an integer; send a commit id"),
            ({"ref_type": None}, "workspace.ref_type must be a string, not null"),
        ],
    )
    def test_a_wrong_field_is_named(self, change: dict[str, Any], text: str) -> None:
        payload = {"workspace": {**WORKSPACE, **change}, "params": {"text": "x"}}
        assert text in refusal(WITH_WORKSPACE, payload)

    def test_a_missing_type_of_ref_is_commit_and_the_output_says_so(self) -> None:
        given = {"repository": "songs", "branch": "main", "ref": "abc"}
        read = read_input(WITH_WORKSPACE, {"workspace": given, "params": {"text": "x"}})
        assert workspace_output(read.workspaces[0], "new") == {**given, "ref_type": "commit", "ref": "new"}

    def test_all_that_is_wrong_is_told_at_once_in_one_line_without_a_value(self) -> None:
        given = {"repository": ["hunter2"], "branch": "main"}
        said = refusal(WITH_WORKSPACE, {"workspace": given, "params": {"text": {"a": "hunter2"}}})
        assert "missing: ref;" in said
        assert "workspace.repository must be a string, not an array; send the repository's name" in said
        assert "params.text: got an object, send a valid string" in said
        assert "\n" not in said
        assert "hunter2" not in said

    @pytest.mark.parametrize("field", ["repository", "branch", "ref"])
    def test_a_missing_field_is_named(self, field: str) -> None:
        given = {name: value for name, value in WORKSPACE.items() if name != field}
        payload = {"workspace": given, "params": {"text": "x"}}
        assert f"missing: {field}" in refusal(WITH_WORKSPACE, payload)

    @pytest.mark.parametrize("given", [None, "songs/main", 7])
    def test_an_input_that_is_no_object_is_refused(self, given: object) -> None:
        said = refusal(WITH_WORKSPACE, {"workspace": given, "params": {"text": "x"}})
        assert "workspace must be an object" in said


class TestRef:
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Iterator[LocalLake]:
        with closing(LocalLake(tmp_path / "lake")) as lake:
            lake.create_repository("songs")
            yield lake

    @pytest.mark.parametrize("read_branch_first", [False, True])
    def test_a_commit_id_and_a_unique_beginning_become_the_full_id(
        self, lake: LocalLake, read_branch_first: bool
    ) -> None:
        head = lake.head("songs", "main").id
        for ref in (head, head[:12]):
            found = start_of(
                lake, ATTEMPT, [{**WORKSPACE, "ref": ref}], View("data/"), read_branch_first=read_branch_first
            )
            assert found.workspace == Workspace("songs", "main", head, "data/")

    @pytest.mark.parametrize("read_branch_first", [False, True])
    def test_a_branch_or_tag_name_is_refused_with_the_commit_it_names(
        self, lake: LocalLake, read_branch_first: bool
    ) -> None:
        head = lake.head("songs", "main").id
        # A name that looks like a commit id is none, either.
        lake.create_tag("songs", "v1", head)
        lake.create_branch("songs", "0" * 64, head)
        for ref in ("main", "v1", "0" * 64):
            with pytest.raises(TaskInputError, match=head):
                start_of(
                    lake, ATTEMPT, [{**WORKSPACE, "ref": ref}], View(""), read_branch_first=read_branch_first
                )

    @pytest.mark.parametrize("read_branch_first", [False, True])
    @pytest.mark.parametrize("change", [{"ref": "0" * 64}, {"repository": "no-such-repository"}])
    def test_what_is_not_there_is_named(
        self, lake: LocalLake, change: dict[str, str], read_branch_first: bool
    ) -> None:
        [(_, value)] = change.items()
        with pytest.raises(LakeNotFound, match=value):
            start_of(lake, ATTEMPT, [{**WORKSPACE, **change}], View(""), read_branch_first=read_branch_first)


class TestRefsReadFromTheBranch:
    """A ref that is the head, or the head's parent, is a commit: one call, and nothing to look up."""

    @pytest.mark.parametrize(
        ("back", "calls", "at_head"),
        [
            (0, ["head"], True),
            (1, ["head"], False),
            (2, ["head", "commit_at"], False),
        ],
    )
    def test_one_call_reads_the_head_and_its_parent(
        self, work: Work, back: int, calls: list[str], at_head: bool
    ) -> None:
        history = [work.commit("main", {"a": text}) for text in (b"1", b"2", b"3")][::-1]
        seen: list[str] = []
        given = {**WORKSPACE, "ref": history[back]}
        found = start_of(recording(work.lake, seen), ATTEMPT, [given], View(""), read_branch_first=True)
        assert (found.workspace.ref, seen, found.at_head is not None) == (history[back], calls, at_head)

    @pytest.mark.parametrize("error", [LakeNotFound("no such branch"), LakeForbidden("not this branch")])
    def test_a_ref_is_looked_up_if_the_branch_does_not_show_it(self, work: Work, error: LakeError) -> None:
        ref = work.commit("main", {"a": b"1"})
        lake = refusing(work.lake, "head", error=error)
        found = start_of(lake, ATTEMPT, [{**WORKSPACE, "ref": ref}], View(""), read_branch_first=True)
        assert (found.workspace.ref, found.at_head) == (ref, None)

    def test_a_lake_that_gives_no_answer_is_not_asked_a_second_question(self, work: Work) -> None:
        seen: list[str] = []
        lake = recording(refusing(work.lake, "head", error=LakeUnavailable("no answer")), seen)
        with pytest.raises(LakeUnavailable, match="no answer"):
            start_of(lake, ATTEMPT, [{**WORKSPACE, "ref": "0" * 64}], View(""), read_branch_first=True)
        assert seen == ["head"]


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ({"said": "a\0b"}, "result.said holds"),
        ({"deep": {"list": ["fine", {"x": "\0"}]}}, "result.deep.list[1].x holds"),
        ({"deep": {"a\0": 1}}, r"the key 'a\x00' of result.deep holds"),
    ],
)
def test_a_nul_is_refused_wherever_it_is(result: dict[str, Any], named: str) -> None:
    with pytest.raises(TaskResultError) as raised:
        check_size(result, None)
    assert str(raised.value).startswith(f"{named} U+0000")
    assert "\0" not in str(raised.value)


def test_every_other_character_of_unicode_is_fine() -> None:
    text = "".join(map(chr, range(1, 0x20))) + "\x7f\x80\u2028\ufeff\ufffe\uffff\U0010ffff"
    check_size({"text": text, text: [text, 1, None, 2.5, True]}, None)
