"""`perago extract`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from perago import build_taskdef, load_tasks
from perago.cli import app

Module = Callable[[str, str], str]

ONE = '@task(name="one", owner_email="a@b.c", description="prüft")\ndef one(params: Params) -> Result: ...\n'
TWO = ONE + '@task(name="two", owner_email="a@b.c")\ndef two(params: Params) -> Result: ...\n'


def test_extract_prints_an_array_even_for_one_task(module: Module) -> None:
    target = module("one.py", ONE)

    done = CliRunner().invoke(app, ["extract", target])

    assert done.exit_code == 0
    assert json.loads(done.stdout) == [build_taskdef(task) for task in load_tasks([target])]
    assert done.stderr == ""


def test_extract_writes_a_file_and_says_which(module: Module, tmp_path: Path) -> None:
    target = module("two.py", TWO)

    done = CliRunner().invoke(app, ["extract", target, "-o", "defs/all.json"])

    assert done.stdout == "defs/all.json\n"
    written = (tmp_path / "defs" / "all.json").read_text(encoding="utf-8")
    assert [taskdef["name"] for taskdef in json.loads(written)] == ["one", "two"]
    assert "prüft" in written


def test_extract_gives_the_same_bytes_every_time(module: Module) -> None:
    target = module("two.py", TWO)

    first, second = (CliRunner().invoke(app, ["extract", target]).stdout for _ in range(2))

    assert first == second


def test_extract_of_a_wrong_module_fails_without_a_traceback(module: Module) -> None:
    done = CliRunner().invoke(app, ["extract", module("wrong.py", ONE.replace('"one"', '"o/ne"', 1))])

    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: wrong.py:")


def test_a_file_that_cannot_be_written_is_told(module: Module, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    done = CliRunner().invoke(app, ["extract", module("one.py", ONE), "-o", "taken"])

    assert done.exit_code == 1
    assert "error: cannot write taken: Is a directory" in done.stderr


FLOWS = """
from perago.workflow import new_workflow, step

from one import Params, one

plays = new_workflow("plays", step(one, "first", params=Params(stem="a")), owner_email="a@b.c")
"""


def test_extract_prints_a_python_workflow_as_conductor_reads_it(module: Module) -> None:
    module("one.py", ONE)
    module("flows.py", FLOWS)

    done = CliRunner().invoke(app, ["extract", "flows.py:plays"])

    assert done.exit_code == 0, done.stderr
    definition = json.loads(done.stdout)
    assert (definition["name"], definition["ownerEmail"]) == ("plays", "a@b.c")
    assert [one["taskReferenceName"] for one in definition["tasks"]] == ["first"]


def test_extract_takes_modules_or_one_workflow(module: Module) -> None:
    done = CliRunner().invoke(app, ["extract", module("one.py", ONE), "flows.py:plays"])

    assert done.exit_code == 2
    assert "a workflow is one JSON object of its own: `perago extract flows.py:plays`" in " ".join(
        done.stderr.replace("│", " ").split()
    )
