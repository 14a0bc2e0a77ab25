"""Tasks that declare what they read and write: what they see, what they may change, and what stays as it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago import forbid_glob, require_dir, require_file, require_glob
from perago.errors import LakeUnavailable
from tests.support.faults.ports import Wrapped, after, refusing
from tests.support.worlds.world import Body, Made, Params, World, change_nothing, make_task, published_ref

INPUT = {
    "data/plays/monday.csv": "so what",
    "data/plays/deep/tuesday.csv": "blue in green",
    "data/plays-old/sunday.csv": "old",
    "data/plays.txt": "text",
    "data/songs": "a file",
    "data/sessions/1.csv": "session",
    "data/sessions/2.csv": "session",
    "data/sessions-old/1.csv": "old session",
}
NARROW: dict[str, Any] = {"reads": ("plays", "songs"), "writes": ("sessions",)}
SEEN = [
    "plays/deep/tuesday.csv",
    "plays/monday.csv",
    "sessions/1.csv",
    "sessions/2.csv",
    "songs",
]


def files_in(workspace: Path) -> list[str]:
    found = [path for path in workspace.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(workspace)) for path in found if path.name != ".perago-attempt.json")


def seeing(seen: list[str]) -> Body:
    def body(workspace: Path, params: Params) -> Made:
        seen[:] = files_in(workspace)
        return Made(said="looked")

    return body


def rewrite_sessions(workspace: Path, params: Params) -> Made:
    """The usual body: one session is new, one is changed, one goes."""
    (workspace / "sessions" / "new").mkdir(parents=True)
    (workspace / "sessions" / "new" / "3.csv").write_text(params.text)
    (workspace / "sessions" / "1.csv").write_text("changed")
    (workspace / "sessions" / "2.csv").unlink()
    return Made(said=params.text)


def noting(lake: Any, asked: list[tuple[str, Any]]) -> Any:
    """The lake, which notes the objects and prefixes that it is asked for."""

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in ("list", "stat", "read", "delete"):
            asked.append((name, arguments[-1]))
        elif name == "download":
            asked.extend((name, file.entry.path) for file in arguments[2])
        elif name == "upload":
            asked.extend((name, file.path) for file in arguments[2])
        return call(*arguments)

    return Wrapped(lake, around)


# --- what is seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "files"),
    [
        (NARROW, SEEN),
        ({"reads": ("plays",)}, ["plays/deep/tuesday.csv", "plays/monday.csv"]),
        ({"reads": ("plays", "plays/deep", "plays")}, ["plays/deep/tuesday.csv", "plays/monday.csv"]),
        ({"reads": ("songs",)}, ["songs"]),
        ({"reads": ("plays/deep/tuesday.csv",)}, ["plays/deep/tuesday.csv"]),
        ({"reads": (), "writes": ("sessions/2.csv",)}, ["sessions/2.csv"]),
        ({"reads": ("play", "none/at/all")}, []),
        ({"prefix": "/", "reads": ("data/songs", "database.txt")}, ["data/songs", "database.txt"]),
        ({"reads": ("plays",), "read_only": True}, ["plays/deep/tuesday.csv", "plays/monday.csv"]),
        (
            {"writes": ("sessions",)},
            sorted([*(path.removeprefix("data/") for path in INPUT), "input.txt", "deep/old.txt"]),
        ),
    ],
)
def test_a_task_sees_what_it_declares_and_nothing_else(
    world: World, spec: dict[str, Any], files: list[str]
) -> None:
    a = world.commit(INPUT)
    seen: list[str] = []

    assert published_ref(world.run(make_task(seeing(seen), **spec))) == a
    assert seen == files


def test_nothing_outside_the_view_is_listed_downloaded_sent_or_deleted(world: World) -> None:
    world.commit(INPUT)
    asked: list[tuple[str, Any]] = []
    task = make_task(rewrite_sessions, **NARROW)
    world.start(task)

    published_ref(world.execute(task, world.poll(task), lake=noting(world.lake, asked)))

    assert [one for one in asked if one[0] in ("list", "stat")] == [
        ("list", "data/plays/"),
        ("stat", "data/plays"),
        ("list", "data/sessions/"),
        ("stat", "data/sessions"),
        ("list", "data/songs/"),
        ("stat", "data/songs"),
    ]
    assert sorted(path for name, path in asked if name == "download") == [f"data/{path}" for path in SEEN]
    sent = sorted(path for name, path in asked if name == "upload")
    assert sent == ["data/sessions/1.csv", "data/sessions/new/3.csv"]
    assert [paths for name, paths in asked if name == "delete"] == [["data/sessions/2.csv"]]


def test_changes_within_the_writes_are_published_and_all_else_stays(world: World) -> None:
    world.commit(INPUT)
    before = world.files()

    ref = published_ref(world.run(make_task(rewrite_sessions, **NARROW)))

    expected = {**before, "data/sessions/1.csv": "changed", "data/sessions/new/3.csv": "made"}
    del expected["data/sessions/2.csv"]
    assert world.files(ref) == expected
    assert world.leftovers() == []
    assert world.workdirs() == []


def test_a_path_that_was_a_file_and_is_a_folder_on_the_next_commit_is_read_as_what_it_is(
    world: World,
) -> None:
    world.commit(INPUT)
    seen: list[str] = []
    task = make_task(seeing(seen), reads=("songs",))

    published_ref(world.run(task))
    first = list(seen)
    world.commit({"data/songs": None, "data/songs/1.csv": "one", "data/songs/2.csv": "two"})
    published_ref(world.run(task))

    assert (first, seen) == (["songs"], ["songs/1.csv", "songs/2.csv"])


def test_a_task_may_make_a_file_of_a_folder_and_a_folder_of_a_file_that_it_writes(world: World) -> None:
    world.commit(INPUT)

    def body(workspace: Path, params: Params) -> Made:
        shutil.rmtree(workspace / "sessions")
        (workspace / "sessions").write_text("now a file")
        (workspace / "songs").unlink()
        (workspace / "songs").mkdir()
        (workspace / "songs" / "1.csv").write_text("one")
        return Made(said="turned")

    ref = published_ref(world.run(make_task(body, reads=("plays",), writes=("sessions", "songs"))))

    files = world.files(ref)
    assert {
        path: text for path, text in files.items() if path.startswith(("data/songs", "data/sessions"))
    } == {
        "data/sessions": "now a file",
        "data/sessions-old/1.csv": "old session",
        "data/songs/1.csv": "one",
    }


def test_a_task_may_be_the_first_to_write_what_it_declares(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        assert files_in(workspace) == []
        (workspace / "new").mkdir()
        (workspace / "new" / "file.txt").write_text("first")
        return Made(said="made")

    before = world.files()
    ref = published_ref(world.run(make_task(body, reads=("none",), writes=("new",))))

    assert world.files(ref) == {**before, "data/new/file.txt": "first"}


def test_checks_see_the_view(world: World) -> None:
    world.commit(INPUT)
    looking = {
        "pre": [
            require_glob("**/*.csv", min_count=4, max_count=4),
            require_dir("plays/deep"),
            require_file("songs"),
        ],
        "post": [forbid_glob("**/*-old/*"), require_file("sessions/new/3.csv")],
    }

    published_ref(world.run(make_task(rewrite_sessions, **NARROW, **looking)))


# --- what may be changed -----------------------------------------------------------------------------------------


def write(path: str) -> Body:
    def body(workspace: Path, params: Params) -> Made:
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("written")
        return Made(said="wrote")

    return body


def remove(path: str) -> Body:
    def body(workspace: Path, params: Params) -> Made:
        (workspace / path).unlink()
        return Made(said="removed")

    return body


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (write("plays/monday.csv"), "plays/monday.csv"),
        (write("plays/new.csv"), "plays/new.csv"),
        (remove("plays/deep/tuesday.csv"), "plays/deep/tuesday.csv"),
        (remove("songs"), "songs"),
        (write("songs/1.csv"), None),
        (write("sessions-old/1.csv"), "sessions-old/1.csv"),
        (write("sessionsX"), "sessionsX"),
        (write("session"), "session"),
        (write("other/new.txt"), "other/new.txt"),
        (write("scratch.txt"), "scratch.txt"),
    ],
)
def test_a_change_outside_writes_fails_the_attempt_before_anything_is_staged(
    world: World, body: Body, named: str | None
) -> None:
    a = world.commit(INPUT)
    if named is None:

        def into_a_folder(workspace: Path, params: Params) -> Made:
            (workspace / "songs").unlink()
            return write("songs/1.csv")(workspace, params)

        body, named = into_a_folder, "songs, songs/1.csv"

    def also(workspace: Path, params: Params) -> Made:
        rewrite_sessions(workspace, params)
        return body(workspace, params)

    task = make_task(also, **NARROW)
    world.start(task)
    lake = refusing(world.lake, "create_branch", "upload", "delete", "commit", "merge", "relocate")
    settled = world.execute(task, world.poll(task), lake=lake)

    assert settled.outcome.status == "FAILED"
    assert settled.outcome.reason == (
        f"the task changed {named}, outside what it may change (sessions). Nothing is published; leave such files as "
        "they were, or name them in WorkspaceSpec(writes=…)"
    )
    assert world.head().id == a
    assert world.workdirs() == []


def test_with_writes_alone_the_rest_of_the_prefix_may_not_be_changed(world: World) -> None:
    a = world.commit(INPUT)

    settled = world.run(make_task(remove("plays.txt"), writes=("sessions", "songs")))

    assert "the task changed plays.txt, outside what it may change (sessions, songs)" in (
        settled.outcome.reason or ""
    )
    assert world.head().id == a


def test_without_writes_a_task_may_change_what_it_reads_and_no_more(world: World) -> None:
    world.commit(INPUT)

    ref = published_ref(world.run(make_task(write("plays/monday.csv"), reads=("plays",))))
    settled = world.run(make_task(write("other.csv"), reads=("plays",)))

    assert world.files(ref)["data/plays/monday.csv"] == "written"
    assert settled.outcome.status == "FAILED"
    assert world.head().id == ref


def test_of_many_changes_outside_the_first_few_are_named_and_the_rest_are_counted(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        for number in range(8):
            (workspace / f"n{number}").write_text("x")
        return Made(said="wrote")

    reason = world.run(make_task(body, **NARROW)).outcome.reason

    assert (reason or "").startswith(
        "the task changed n0, n1, n2, n3, n4 and 3 more, outside what it may change"
    )


def test_a_file_that_is_written_again_with_the_same_bytes_is_not_changed(world: World) -> None:
    a = world.commit(INPUT)

    def body(workspace: Path, params: Params) -> Made:
        file = workspace / "plays" / "monday.csv"
        file.write_text(file.read_text())
        (workspace / "empty" / "folder").mkdir(parents=True)
        return Made(said="same")

    assert published_ref(world.run(make_task(body, **NARROW))) == a


def test_changes_of_a_read_only_task_are_dropped(world: World) -> None:
    a = world.commit(INPUT)

    settled = world.run(make_task(write("plays/new.csv"), reads=("plays",), read_only=True))

    assert published_ref(settled) == a == world.head().id


# --- retries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
def test_a_retry_over_an_abandoned_publication_leaves_what_it_does_not_see(world: World, policy: str) -> None:
    world.commit(INPUT)
    before = world.files()
    texts = iter(["first", "second"])

    def body(workspace: Path, params: Params) -> Made:
        text = next(texts)
        (workspace / "sessions" / f"{text}.csv").write_text(text)
        (workspace / "sessions" / "2.csv").unlink()
        return Made(said=text)

    task = make_task(body, on_abandoned=policy, **NARROW)
    world.start(task)

    def lose() -> None:
        raise LakeUnavailable("no answer")

    # The first attempt publishes, and its result is lost.
    world.execute(task, world.poll(task), lake=refusing_after_merge(world, lose))
    again = world.retry(task)
    # Other work, so that `reuse` does not answer with the first result.
    again = replace(again, input={**again.input, "params": {"text": "other"}})
    asked: list[tuple[str, Any]] = []
    ref = published_ref(world.execute(task, again, lake=noting(world.lake, asked)))

    expected = {**before, "data/sessions/second.csv": "second"}
    del expected["data/sessions/2.csv"]
    assert world.files(ref) == expected
    roots = ("data/plays/", "data/sessions/", "data/songs/")
    assert {what for name, what in asked if name == "list" and not what.startswith("_lakefs")} == set(roots)


def refusing_after_merge(world: World, lose: Callable[[], None]) -> Any:
    return refusing(
        after(world.lake, "merge", lose), "barrier", error=LakeUnavailable("the lake is away for a moment")
    )


@pytest.mark.parametrize(
    ("view", "runs"),
    [
        ({"reads": ("songs", "plays", "songs"), "writes": ("sessions",)}, 1),
        ({"reads": ("plays",), "writes": ("sessions",)}, 2),
        ({"reads": ("plays", "songs"), "writes": ("sessions", "songs")}, 2),
    ],
)
def test_reuse_finds_the_result_of_the_same_view_and_not_that_of_another(
    world: World, view: dict[str, Any], runs: int
) -> None:
    world.commit(INPUT)
    calls: list[str] = []

    def body(workspace: Path, params: Params) -> Made:
        calls.append("ran")
        (workspace / "sessions" / "same.csv").write_text("same")
        return Made(said="same")

    def lose() -> None:
        raise LakeUnavailable("no answer")

    first = make_task(body, on_abandoned="reuse", **NARROW)
    world.start(first)
    world.execute(first, world.poll(first), lake=refusing_after_merge(world, lose))
    head = world.head().id
    then = make_task(body, on_abandoned="reuse", **view)

    assert published_ref(world.execute(then, world.retry(then))) == head
    assert len(calls) == runs


# --- what commits and failures say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "writes"),
    [
        (NARROW, ["data/sessions"]),
        ({"reads": ("sessions",)}, ["data/sessions"]),
        ({}, ["data/"]),
        ({"prefix": "/", "writes": ("data/sessions", "x")}, ["data/sessions", "x"]),
    ],
)
def test_a_publication_says_what_its_task_may_change(
    world: World, spec: dict[str, Any], writes: list[str]
) -> None:
    world.commit(INPUT)
    path = "data/sessions/n.csv" if spec.get("prefix") == "/" else "sessions/n.csv"

    published_ref(world.run(make_task(write(path), **spec)))

    assert json.loads(world.head().metadata["perago.writes"]) == writes


def test_a_view_that_holds_nothing_is_told_with_the_failure_and_nothing_else_is_listed(world: World) -> None:
    a = world.commit(INPUT)
    asked: list[tuple[str, Any]] = []
    task = make_task(reads=("play", "song"), pre=[require_glob("play/*")])
    world.start(task)

    settled = world.execute(task, world.poll(task), lake=noting(world.lake, asked))

    assert settled.outcome.status == "FAILED_WITH_TERMINAL_ERROR"
    assert f"(there is nothing at 'data/play' and 'data/song' at {a} of" in (settled.outcome.reason or "")
    assert {what for name, what in asked if name == "list"} == {"data/play/", "data/song/"}


def test_nothing_is_said_of_an_empty_view_where_it_holds_files(world: World) -> None:
    world.commit(INPUT)

    settled = world.run(make_task(change_nothing, reads=("plays",), pre=[require_glob("plays/*.parquet")]))

    assert "there is nothing at" not in (settled.outcome.reason or "")
