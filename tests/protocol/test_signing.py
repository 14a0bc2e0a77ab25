"""Commit metadata, and when the head's record counts as the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit, StagedWorkspace, Workspace
from perago.protocol.signing import (
    MAX_RECORDED_RESULT,
    Maker,
    Signature,
    author_of,
    base_of,
    encode_result,
    input_digest,
    is_by_attempt,
    is_in_place,
    is_publication_of,
    maker_of,
    recorded_result,
    recorded_result_anywhere,
)
from perago.protocol.view import View

ATTEMPT = Attempt(
    "wf", "task-1", "clean", "clean_events", retry_count=1, seq=1, iteration=0, scheduled_time=1000
)
WORKSPACE = Workspace("songs", "main", "A", "events/")
SIGNATURE = Signature(ATTEMPT, "exec1", WORKSPACE, "digest")
STAGED = StagedWorkspace("songs", "staging", "C")

NAMES_OF_THE_SEED = {
    "perago.phase": "confirm",
    "perago.logical_task_key": "wf/clean",
    "perago.task_id": "task-1",
    "perago.retry_count": "1",
    "perago.scheduled_time": "1000",
    "perago.input_ref": "A",
    "perago.target_branch": "main",
    "perago.prefix": "/events",
    "perago.writes": '["events/"]',
    "perago.staging_branch": "staging",
    "perago.staging_commit": "C",
    "perago.expected_head": "A",
    "perago.supersedes": "",
    "perago.execution_id": "exec1",
    "perago.input_digest": "digest",
    "perago.fence": "hard",
}


def published(**changed: str) -> Commit:
    metadata = SIGNATURE.publication(STAGED, expected_head="A", supersedes="", fence="hard")
    return Commit("H", ("A",), metadata={**metadata, "perago.result": "{}", **changed})


def test_a_publication_carries_the_full_set_of_names() -> None:
    assert SIGNATURE.publication(STAGED, expected_head="A", supersedes="", fence="hard") == NAMES_OF_THE_SEED


def test_a_staging_commit_carries_the_same_names() -> None:
    staging = SIGNATURE.staging("staging", base="A", fence="soft")
    assert staging.keys() == NAMES_OF_THE_SEED.keys()
    assert (staging["perago.phase"], staging["perago.staging_commit"]) == ("try", "")


def test_the_message_is_for_people() -> None:
    message = SIGNATURE.message("publishes")
    assert message == "perago: clean_events publishes /events (workflow wf, step clean, retry 1)"


def test_the_digest_tells_work_apart_and_not_the_order_of_params() -> None:
    def digest(**changed: object) -> str:
        same = {
            "task_name": "t",
            "version": "1",
            "params": {"a": 1, "b": 2},
            "input_ref": "A",
            "view": View("p/"),
        }
        return input_digest(**{**same, **changed})  # type: ignore[arg-type]

    assert digest() == digest(params={"b": 2, "a": 1})
    others = [
        digest(task_name="u"),
        digest(version="2"),
        digest(params={"a": 1}),
        digest(input_ref="B"),
        digest(view=View("")),
    ]
    assert len({digest(), *others}) == 6


def digest_of(view: View) -> str:
    return input_digest(task_name="t", version="1", params={"a": 1}, input_ref="A", view=view)


def test_without_reads_and_writes_the_digest_is_what_it_was_before_there_were_any() -> None:
    # Of an earlier version: results that it recorded must still be found.
    assert digest_of(View("p/")) == "a1e317432ae96bf9b50417faefb6eb9726b07e3a4badd6392568fd77f5232ee1"


def test_with_plain_reads_and_writes_the_digest_is_what_it_was_before_there_were_templates() -> None:
    # Of an earlier version, too.
    view = View("p/", ("b", "a"), ("c",))
    assert digest_of(view) == "ce1f5b826736455c60b0bdb2d0365abce370899533205ffa774389c5e8e87c83"


def test_the_digest_covers_what_a_task_reads_and_what_it_writes() -> None:
    views = [
        View("p/"),
        View("p/", ("a",)),
        View("p/", ("a", "b")),
        View("p/", ("a",), ("b",)),
        View("p/", ("a", "b"), ("b",)),
        View("p/", None, ("b",)),
        View("p/", None, ("a",)),
    ]

    # Reading a and writing b, and reading both and writing b, see and change the same.
    assert len({digest_of(view) for view in views}) == len(views) - 1
    assert digest_of(views[3]) == digest_of(views[4])


def test_the_digest_goes_by_what_the_paths_mean_and_not_by_how_they_are_written() -> None:
    same = [View("p/", ("a", "b")), View("p/", ("b", "a/x", "a", "b")), View("p/", ("a",), ("b", "a"))]

    assert digest_of(same[0]) == digest_of(same[1])
    assert digest_of(same[0]) == digest_of(same[2])


@pytest.mark.parametrize(
    ("view", "writes"),
    [
        (View(""), '[""]'),
        (View("", ("plays",)), '["plays"]'),
        (View("a/", ("plays",), ("süß", "b", "b/c")), '["a/b", "a/süß"]'),
        (View("a/", None, ("b",)), '["a/b"]'),
    ],
)
def test_a_publication_tells_what_its_task_may_change(view: View, writes: str) -> None:
    workspace = replace(WORKSPACE, prefix=view.prefix, declared_view=view)
    signature = replace(SIGNATURE, workspace=workspace)

    assert (
        signature.publication(STAGED, expected_head="A", supersedes="", fence="hard")["perago.writes"]
        == writes
    )
    assert signature.staging("staging", base="A", fence="soft")["perago.writes"] == writes


def test_the_heads_record_counts_for_this_very_work() -> None:
    assert recorded_result(published(), SIGNATURE) == "{}"


@pytest.mark.parametrize(
    "head",
    [
        published(**{"perago.phase": "try"}),
        published(**{"perago.logical_task_key": "wf/other"}),
        published(**{"perago.input_digest": "another"}),
        published(**{"perago.expected_head": "elsewhere"}),
        replace(published(), parents=()),
        replace(published(), metadata={}),
    ],
)
def test_any_other_head_does_not_count(head: Commit) -> None:
    assert recorded_result(head, SIGNATURE) is None


def test_work_is_known_wherever_its_commit_landed() -> None:
    elsewhere = replace(published(), parents=("B",))
    assert not is_in_place(elsewhere)
    assert recorded_result_anywhere(elsewhere, SIGNATURE) == "{}"
    assert recorded_result_anywhere(published(**{"perago.input_digest": "another"}), SIGNATURE) is None


def test_a_publication_was_staged_on_what_it_says_or_on_its_expected_head() -> None:
    assert base_of(published()) == "A"
    assert base_of(published(**{"perago.staging_base": "B"})) == "B"
    assert base_of(Commit("H", ())) == ""


def test_a_result_is_recorded_up_to_its_limit() -> None:
    empty = len('{"t":""}')
    assert encode_result({"t": "x" * (MAX_RECORDED_RESULT - empty)}) is not None
    assert encode_result({"t": "x" * (MAX_RECORDED_RESULT - empty + 1)}) is None


def test_a_publication_is_recognised_by_what_it_merged_and_where() -> None:
    assert is_publication_of(Commit("C", ("A",)), STAGED)
    assert is_publication_of(published(), STAGED)
    assert not is_publication_of(published(**{"perago.staging_commit": "D"}), STAGED)
    assert is_publication_of(replace(published(), parents=("B",)), STAGED)


def test_a_commit_is_by_this_attempt_if_task_id_and_scheduled_time_are_the_same() -> None:
    assert is_by_attempt(published(), ATTEMPT)
    assert not is_by_attempt(published(), replace(ATTEMPT, task_id="task-2"))
    rerun = replace(ATTEMPT, scheduled_time=2000)
    assert not is_by_attempt(published(), rerun)
    of_an_old_version = Commit("H", ("A",), metadata={"perago.task_id": "task-1"})
    assert is_by_attempt(of_an_old_version, rerun)


def test_a_commit_names_the_attempt_that_made_it() -> None:
    said = SIGNATURE.publication(STAGED, expected_head="A", supersedes="", fence="hard")
    made = Commit("H", ("A",), metadata=said)

    assert maker_of(made) == Maker("wf", "clean", "task-1", 1, "A")
    assert author_of(made) == "step clean of workflow wf"


@pytest.mark.parametrize(
    ("metadata", "committer", "author"),
    [
        ({"perago.logical_task_key": "perago-merge"}, "ana", "perago merge"),
        ({"perago.logical_task_key": "wf/clean"}, "", "not signed"),
        ({"perago.logical_task_key": "other"}, "ana", "ana"),
        ({}, "ana", "ana"),
        ({}, "", "not signed"),
    ],
)
def test_a_commit_without_an_attempt_names_its_command_or_its_user(
    metadata: dict[str, str], committer: str, author: str
) -> None:
    made = replace(Commit("H", ("A",)), metadata=metadata, committer=committer)

    assert maker_of(made) is None
    assert author_of(made) == author


def test_a_retry_count_that_is_no_number_counts_as_the_first_try() -> None:
    said = {"perago.logical_task_key": "wf/clean", "perago.task_id": "t", "perago.retry_count": "x"}

    found = maker_of(replace(Commit("H", ("A",)), metadata=said))

    assert found is not None
    assert found.retry_count == 0
