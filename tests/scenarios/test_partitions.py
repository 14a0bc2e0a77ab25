"""Tasks whose paths name params: each attempt sees and changes the partition that its params name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perago import WorkspaceSpec, require_file, require_glob
from perago.protocol.names import run_branch_name
from perago.protocol.signing import input_digest
from perago.protocol.view import View
from perago.runtime.execution_result import ExecutionResult
from tests.scenarios.test_reads_writes import files_in, noting
from tests.support.worlds.concurrent_steps import TIMING
from tests.support.worlds.world import Made, Params, World, abandon, make_task, published_ref

INPUT = {
    "data/raw/day=1/a.csv": "one",
    "data/raw/day=1/deep/b.csv": "one",
    "data/raw/day=2/a.csv": "two",
    "data/raw/day=11/a.csv": "eleven",
    "data/raw/day=a%2Fb/a.csv": "escaped",
    "data/clean/day=1/old.csv": "old",
    "data/clean/day=2/old.csv": "old",
}
DAILY: dict[str, Any] = {"reads": ("raw/day={text}",), "writes": ("clean/day={text}",)}
BESIDE: dict[str, Any] = {**DAILY, "on_abandoned": "supersede", "on_advanced": "rebase"}


@pytest.fixture(autouse=True)
def inputs(world: World) -> None:
    world.commit(INPUT)


def clean(workspace: Path, params: Params) -> Made:
    """Write a file into the attempt's own partition."""
    folder = workspace / "clean" / f"day={params.text.replace('/', '%2F')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new.csv").write_text(f"clean {params.text}")
    return Made(said=",".join(files_in(workspace)))


def failed(result: ExecutionResult) -> str:
    assert result.outcome.status == "FAILED", result.outcome
    return result.outcome.reason or ""


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("1", ["clean/day=1/old.csv", "raw/day=1/a.csv", "raw/day=1/deep/b.csv"]),
        ("2", ["clean/day=2/old.csv", "raw/day=2/a.csv"]),
        ("a/b", ["raw/day=a%2Fb/a.csv"]),
        ("3", []),
    ],
)
def test_only_the_partition_is_listed_and_downloaded(world: World, text: str, seen: list[str]) -> None:
    asked: list[tuple[str, Any]] = []
    task = make_task(clean, **DAILY)
    world.start(task, text=text)

    result = world.execute(task, world.poll(task), lake=noting(world.lake, asked))

    published_ref(result)
    assert sorted(path for name, path in asked if name == "download") == [f"data/{path}" for path in seen]
    escaped = text.replace("/", "%2F")
    assert [path for name, path in asked if name == "list"] == [
        f"data/clean/day={escaped}/",
        f"data/raw/day={escaped}/",
    ]
    assert world.files()[f"data/clean/day={escaped}/new.csv"] == f"clean {text}"
    assert json.loads(world.head().metadata["perago.writes"]) == [f"data/clean/day={escaped}"]


@pytest.mark.parametrize(
    "path", ["clean/day=2/x.csv", "clean/x.csv", "raw/day=1/x.csv", "clean/day={text}/x.csv"]
)
def test_a_change_outside_the_partition_fails_by_name(world: World, path: str) -> None:
    head = world.head().id

    def stray(workspace: Path, params: Params) -> Made:
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("stray")
        return Made(said="")

    reason = failed(world.run(make_task(stray, **DAILY), text="1"))

    assert f"the task changed {path}, outside what it may change (clean/day=1)" in reason
    assert world.head().id == head


def test_two_partitions_are_published_side_by_side(world: World) -> None:
    a, task = world.head().id, make_task(clean, **BESIDE)
    assignments = []
    for text in ("1", "2"):
        world.start(task, text=text, ref=a)
        assignments.append(world.poll(task))

    first, second = (published_ref(world.execute(task, one, timing=TIMING)) for one in assignments)

    assert world.history()[:3] == [second, first, a]
    assert world.head().metadata["perago.rebased_over"] == "1"
    files = world.files()
    assert files["data/clean/day=1/new.csv"] == "clean 1"
    assert files["data/clean/day=2/new.csv"] == "clean 2"


HOSTILE = [
    *(
        "a b",
        " a",
        "x=1",
        "a/b",
        "a%2Fb",
        "50%",
        "%",
        "ü",
        "u\u0308",
        "😀",
        "a:b",
        "'q'",
        '"q"',
        "a*",
        "a?b",
        "[a]",
        "{a",
    ),
    *(
        "a^b",
        "a#b",
        "a\\b",
        "a+b&c",
        "~a",
        "-rf",
        "a.",
        "a..b",
        "$HOME",
        "a|b",
        "<a>",
        "a;b,c",
        "`a`",
        "!a",
        "@a",
        "A",
        "a",
    ),
    *("NULL", "true", "x" * 200, "ü" * 100, "/" * 66, "s3:/b/c?x=1#y", "clean", "main", "refs/heads/main"),
]


def test_every_value_has_a_partition_of_its_own(world: World) -> None:
    paths = {text: WorkspaceSpec(**DAILY).filled(Params(text=text)) for text in HOSTILE}

    def body(workspace: Path, params: Params) -> Made:
        [source], [target] = paths[params.text].reads or (), paths[params.text].writes or ()
        (workspace / target).mkdir(parents=True)
        (workspace / target / "new.csv").write_text((workspace / source / "a.csv").read_text())
        return Made(said=params.text)

    world.commit({f"data/{(spec.reads or ())[0]}/a.csv": text for text, spec in paths.items()})
    a, task = world.head().id, make_task(body, **BESIDE)
    for text in HOSTILE:
        world.start(task, text=text, ref=a)
        result = world.execute(task, world.poll(task), timing=TIMING)
        assert result.outcome.status == "COMPLETED", (text, result.outcome)

    files = world.files()
    assert {path for path in files if path.endswith("new.csv")} == {
        f"data/{(spec.writes or ())[0]}/new.csv" for spec in paths.values()
    }
    assert all(files[f"data/{(spec.writes or ())[0]}/new.csv"] == text for text, spec in paths.items())
    assert world.history().index(a) == len(HOSTILE)


def test_one_partition_is_not_published_twice_from_one_commit(world: World) -> None:
    a, task = world.head().id, make_task(clean, **BESIDE)
    assignments = []
    for _ in range(2):
        world.start(task, text="1", ref=a)
        assignments.append(world.poll(task))

    first = published_ref(world.execute(task, assignments[0], timing=TIMING))
    second = world.execute(task, assignments[1], timing=TIMING)

    assert second.refused
    assert "clean/day=1" in failed(second)
    assert world.history()[:2] == [first, a]


def test_checks_are_those_of_the_partition(world: World) -> None:
    spec = DAILY | {
        "pre": [require_file("raw/day={text}/a.csv")],
        "post": [require_glob("clean/day={text}/*.csv", max_count=1)],
    }

    published_ref(world.run(make_task(clean, **spec), text="a/b"))
    reason = failed(world.run(make_task(clean, name="again", **spec), text="1"))
    missing = world.run(make_task(clean, name="more", **spec), text="3")

    assert (
        "post check require_glob('clean/day=1/*.csv', min_count=1, max_count=1) failed: it matched 2"
        in reason
    )
    assert missing.outcome.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "pre check require_file('raw/day=3/a.csv') failed" in (missing.outcome.reason or "")


def test_equal_work_on_a_partition_is_reused(world: World) -> None:
    ran = []

    def body(workspace: Path, params: Params) -> Made:
        ran.append(params.text)
        return clean(workspace, params)

    task = make_task(body, **DAILY, on_abandoned="reuse")
    world.start(task)
    abandoned = abandon(world, task)

    assert published_ref(world.execute(task, world.retry(task))) == abandoned
    assert ran == ["made"]


def test_a_step_of_a_run_tells_the_run_which_partition_it_saw(world: World) -> None:
    task = make_task(clean, **DAILY)
    world.start(task)
    branch = run_branch_name(world.poll(task).attempt)
    world.lake.create_branch(world.repository, branch, world.head().id)
    workspace = {"repository": world.repository, "branch": branch, "ref": world.head().id}
    world.start_with(task, {"workspace": workspace, "params": {"text": "a/b"}})

    result = world.execute(task, world.poll(task))

    assert result.outcome.status == "COMPLETED", result.outcome
    assert (result.outcome.output or {})["view"] == {
        "reads": ["data/clean/day=a%2Fb", "data/raw/day=a%2Fb"],
        "writes": ["data/clean/day=a%2Fb"],
    }


def test_the_digest_of_the_input_is_that_of_the_filled_paths(world: World) -> None:
    a = world.head().id

    published_ref(world.run(make_task(clean, **DAILY), text="1"))

    view = View("data/", ("raw/day=1",), ("clean/day=1",))
    assert world.head().metadata["perago.input_digest"] == input_digest(
        task_name="make", version="1", params={"text": "1"}, input_ref=a, view=view
    )


@pytest.mark.parametrize(
    "text", ["", "..", "_lakefs_actions", "a\nb", "x" * 201, "}", "__HIVE_DEFAULT_PARTITION__"]
)
def test_a_value_that_names_no_partition_is_wrong_input_before_anything_is_read(
    world: World, text: str
) -> None:
    asked: list[tuple[str, Any]] = []
    task = make_task(clean, **DAILY)
    world.start(task, text=text)

    result = world.execute(task, world.poll(task), lake=noting(world.lake, asked))

    reason = failed(result)
    assert reason.startswith("params.text cannot fill 'raw/day={text}': it must ")
    assert not text or text not in reason.replace("'}'", "").replace("{text}", "").replace("'.' or '_'", "")
    assert asked == []
    assert world.workdirs() == []
    assert world.leftovers() == []


def test_a_value_that_names_no_partition_can_end_the_task_at_once(world: World) -> None:
    task = make_task(clean, **DAILY)
    world.start(task, text="")

    result = world.execute(task, world.poll(task), wrong_input="terminal")

    assert result.outcome.status == "FAILED_WITH_TERMINAL_ERROR"
