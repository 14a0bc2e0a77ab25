"""`perago init`: names, what is refused, and what is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from perago import __version__
from perago.runtime.scaffold import project_files, project_name
from tests.support.docs.sources import run_mypy
from tests.support.faults.disks import no_file_above
from tests.support.processes.commands import Shell

LAKEFS_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
"""lakeFS 1.84.0, pkg/validator."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("name", "repository", "prefix"),
    [
        ("weather", "weather", "weather"),
        ("Weather_2", "weather-2", "weather_2"),
        ("my-first-pipeline", "my-first-pipeline", "my_first_pipeline"),
        ("a" * 63, "a" * 63, "a" * 63),
    ],
)
def test_names_of_repository_and_tasks_follow_from_the_projects(
    name: str, repository: str, prefix: str
) -> None:
    named = project_name(name)

    assert (named.repository, named.prefix) == (repository, prefix)
    assert LAKEFS_REPOSITORY.fullmatch(named.repository)
    assert named.prefix.isidentifier()


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("my project", "my-project"),
        ("../weather", "weather"),
        ("weather/", "weather"),
        ("2weather", "my-2weather"),
        ("ab", "my-ab"),
        (".", "my-project"),
        ("", "my-project"),
        ("météo", "meteo"),
        ("a" * 64, "a" * 50),
        ("perago", "my-perago"),
    ],
)
def test_a_name_that_does_not_do_is_told_with_one_that_does(name: str, instead: str, shell: Shell) -> None:
    said = shell.run_here("init", name)

    assert said.code == 1
    [line] = said.err.splitlines()
    assert line.startswith(f"error: a project cannot be called {name!r}: ")
    assert line.endswith(f"`perago init {instead}`")
    assert list(shell.folder.iterdir()) == []
    assert shell.run_here("init", instead, "--no-spark").code == 0


def test_existing_files_are_never_overwritten(shell: Shell) -> None:
    (shell.folder / "weather").mkdir()
    (shell.folder / "weather" / "notes.txt").write_text("mine")
    (shell.folder / "report").write_text("mine")
    (shell.folder / "linked").symlink_to(shell.folder / "elsewhere")

    for name, why in (("weather", "is not empty"), ("report", "not a folder"), ("linked", "not a folder")):
        said = shell.run_here("init", name)
        assert (said.code, said.out) == (1, "")
        [line] = said.err.splitlines()
        assert f"{name} already exists" in line
        assert why in line
        assert "choose another name" in line
    assert [path.name for path in sorted(shell.folder.rglob("*"))] == [
        "linked",
        "report",
        "weather",
        "notes.txt",
    ]


def test_an_empty_folder_is_filled(shell: Shell) -> None:
    (shell.folder / "weather").mkdir()

    assert shell.run_here("init", "weather", "--no-spark").code == 0
    assert (shell.folder / "weather" / "Makefile").is_file()


def test_a_full_disk_leaves_nothing_behind(shell: Shell) -> None:
    with no_file_above(1000):
        said = shell.run_here("init", "weather")

    assert said.code == 1
    assert said.err.startswith("error: cannot make weather: File too large; ")
    assert list(shell.folder.iterdir()) == []
    assert shell.run_here("init", "weather").code == 0


def test_a_missing_java_is_said_at_once(shell: Shell) -> None:
    shell.environ |= {"JAVA_HOME": str(shell.folder)}

    said = shell.run_here("init", "weather")

    assert said.code == 0
    [line] = said.err.splitlines()
    assert line.startswith(f"warning: Java: JAVA_HOME={shell.folder} has no bin/java")
    assert line.endswith("or remove weather and run `perago init weather --no-spark`")
    assert shell.run_here("init", "plain", "--no-spark").err == ""


def test_others_may_read_a_project_as_far_as_its_owner_lets_them(shell: Shell) -> None:
    shell.run_here("init", "weather")
    (shell.folder / "usual").mkdir()

    assert (shell.folder / "weather").stat().st_mode == (shell.folder / "usual").stat().st_mode


@pytest.mark.parametrize("option", [(), ("--no-spark",)], ids=["with Spark", "without Spark"])
def test_the_check_finds_nothing_in_a_new_project(option: tuple[str, ...], shell: Shell) -> None:
    shell.run_here("init", "weather", *option)
    project = Shell(shell.folder / "weather")

    said = project.run("check", "tasks/clean.py", "tasks/summarize.py", "flow.py:workflow")

    assert (said.code, said.err) == (0, "")
    assert "steps      2" in said.out
    assert ("SparkWorkspace" in said.out) == (not option)


@pytest.mark.parametrize("option", [(), ("--no-spark",)], ids=["with Spark", "without Spark"])
@pytest.mark.parametrize("param", ["lowest", "min_readings"])
def test_a_misspelt_param_of_a_new_projects_workflow_is_refused(
    option: tuple[str, ...], param: str, shell: Shell
) -> None:
    shell.run_here("init", "weather", *option)
    project = Shell(shell.folder / "weather")
    flow = project.folder / "flow.py"
    flow.write_text(flow.read_text().replace(f"{param}=", "misspelt="))

    said = project.run("check", "tasks/clean.py", "tasks/summarize.py", "flow.py:workflow")

    assert said.code == 1
    assert re.search(r"flow\.py:\d+: .*misspelt Extra inputs are not permitted", said.err)


def test_every_task_of_a_new_project_refuses_commits_that_people_make_by_hand(shell: Shell) -> None:
    assert shell.run("init", "demo").code == 0
    found = Shell(shell.folder / "demo", shell.environ).data("check", "tasks/clean.py", "tasks/summarize.py")
    assert [task["workspace"]["unsigned"] for task in found["tasks"]] == ["refuse", "refuse"]


@pytest.mark.parametrize("spark", [True, False])
def test_every_word_of_the_templates_is_filled_in(spark: bool) -> None:
    texts = project_files(project_name("weather"), spark=spark, version=__version__)

    assert [path for path, text in texts.items() if "{{" in text] == []
    needs = texts["requirements.txt"].splitlines()[0]
    assert needs == f"perago{'[spark]' if spark else ''}>={__version__}"
    assert ("park" in "".join(texts.values())) == spark, "a project without Spark does not speak of it"


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--no-spark",)], ids=["with Spark", "without Spark"])
def test_a_new_project_passes_formatter_linter_and_strict_types(
    option: tuple[str, ...], shell: Shell
) -> None:
    shell.run_here("init", "weather", *option)
    rules = "E,F,W,I,B,UP,SIM,C4,PT,RUF"
    for tool in (
        ("ruff", "format", "--isolated", "--check", "."),
        ("ruff", "check", "--isolated", "--select", rules, "."),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *tool],
            cwd=shell.folder / "weather",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    typed = run_mypy(shell.folder / "weather", "--strict", "flow.py", "tasks", "tests")
    assert typed.returncode == 0, typed.stdout + typed.stderr
