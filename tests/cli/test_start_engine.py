"""Refusals of `perago start --engine spark` before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes.commands import Shell

TASKS = str(Path(__file__).parents[1] / "support" / "tasks" / "map_tasks.py")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_files_for_executors_need_the_engine_that_has_some(shell: Shell) -> None:
    said = shell.run_here("start", TASKS, "--local", "--py-files", TASKS)

    assert said.code == 2
    assert "add --engine spark" in said.err


def test_embedded_servers_are_refused_where_executors_do_not_share_their_folder(shell: Shell) -> None:
    shell.environ["PERAGO_SPARK_MASTER"] = "spark://head:7077"

    said = shell.run("start", TASKS, "--local", "--register", "--engine", "spark")

    assert said.code == 1
    assert "which the executors of spark://head:7077 do not share: leave out --local" in said.err
    assert not (shell.folder / ".perago" / "spark").exists()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ("app.zip", "--py-files: there is no file 'app.zip'"),
        ("app.py,app.zip", "--py-files: there is no file 'app.zip'"),
        ("app.py,app.txt", "--py-files: 'app.txt' is not a .py, .zip or .egg file"),
    ],
)
def test_a_file_that_cannot_be_sent_is_named(shell: Shell, files: str, problem: str) -> None:
    for name in ("app.py", "app.txt"):
        (shell.folder / name).touch()

    said = shell.run_here("start", TASKS, "--local", "--engine", "spark", "--py-files", files)

    assert said.code == 2
    assert problem in said.err
