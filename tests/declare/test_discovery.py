"""From targets to tasks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from perago import TaskDefinitionError, load_module_task, load_tasks
from perago.declare.discovery import collect

HEAD = """
from pydantic import BaseModel
from perago import task, RetryPolicy

class M(BaseModel):
    a: int = 0
"""

Write = Callable[[str, str], Path]


def declaring(*names: str) -> str:
    return HEAD + "".join(
        f"\n@task(name={name!r}, owner_email='a@b.c')\ndef {name}(params: M) -> M: ...\n" for name in names
    )


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file below the current folder."""
    monkeypatch.chdir(tmp_path)

    def put(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source))
        return path

    return put


def names(*targets: str) -> list[str]:
    return [task.name for task in load_tasks(targets)]


def test_an_import_path_is_looked_up_from_the_current_folder(write: Write) -> None:
    write("disc_app/__init__.py", "")
    write("disc_app/tasks.py", declaring("one", "two"))

    assert names("disc_app.tasks") == ["one", "two"]


def test_a_file_is_a_target(write: Write) -> None:
    path = write("disc_jobs/daily-job.py", declaring("one"))

    assert names("disc_jobs/daily-job.py") == names(str(path)) == ["one"]


def test_a_file_is_loaded_again_only_when_it_has_changed(write: Write) -> None:
    write("disc_file.py", declaring("one"))
    [first] = load_tasks(["disc_file.py"])
    [again] = load_tasks(["./disc_file.py"])
    write("disc_file.py", declaring("two"))

    assert again is first
    assert names("disc_file.py") == ["two"]


def test_a_file_sees_its_siblings(write: Write) -> None:
    write("disc_side/disc_sibling.py", "NAME = 'from_sibling'")
    write(
        "disc_side/tasks.py",
        HEAD
        + "from disc_sibling import NAME\n@task(name=NAME, owner_email='a@b.c')\ndef t(params: M) -> M: ...",
    )

    assert names("disc_side/tasks.py") == ["from_sibling"]


def test_a_file_of_a_package_is_the_same_as_its_import_path(write: Write) -> None:
    write("disc_pack/__init__.py", "")
    write("disc_pack/shared.py", declaring("imported") + "NAME = 'relative'\n")
    write(
        "disc_pack/tasks.py",
        HEAD
        + "from .shared import NAME, imported\n@task(name=NAME, owner_email='a@b.c')\ndef t(params: M) -> M: ...",
    )

    assert names("disc_pack/tasks.py", "disc_pack.tasks") == ["relative"]


def test_imported_tasks_do_not_count(write: Write) -> None:
    write("disc_lib.py", declaring("theirs"))
    write("disc_mine.py", declaring("mine") + "from disc_lib import theirs\n")

    assert names("disc_mine") == ["mine"]
    assert names("disc_mine", "disc_lib") == ["mine", "theirs"]


def test_tasks_that_a_function_makes_count(write: Write) -> None:
    write(
        "disc_made.py",
        HEAD
        + """
def make(name):
    @task(name=name, owner_email="a@b.c")
    def made(params: M) -> M: ...
    return made

tasks = [make("a"), make("b")]
""",
    )

    assert names("disc_made") == ["a", "b"]


@pytest.mark.slow
def test_a_target_means_the_same_in_another_process(write: Write) -> None:
    write("disc_far/tasks.py", declaring("far"))
    script = "from perago import load_module_task as load; print(load('disc_far/tasks.py').fn.__module__)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == load_module_task("disc_far/tasks.py").fn.__module__


def test_asking_for_one_task_of_two_is_refused(write: Write) -> None:
    write("disc_two.py", declaring("one", "two"))

    with pytest.raises(TaskDefinitionError, match=r"'disc_two' declares 2 tasks \(one, two\), one is wanted"):
        load_module_task("disc_two")


def test_two_modules_may_not_declare_one_name(write: Write) -> None:
    write("disc_first.py", declaring("same"))
    write("disc_second.py", declaring("other", "same"))

    with pytest.raises(TaskDefinitionError) as caught:
        load_tasks(["disc_first", "disc_second"])

    said = str(caught.value)
    assert "disc_second.py:11: task 'same': name = 'same': is taken by the task at disc_first.py:8" in said


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("disc_nowhere", "target 'disc_nowhere': there is no module 'disc_nowhere' (looked in "),
        ("disc_none.py", "target 'disc_none.py': there is no such file"),
        ("disc_bad:fn", "target 'disc_bad:fn': must be an import path (app.tasks) or a file (app/tasks.py)"),
        ("", "target '': must be an import path"),
        ("disc_empty", "target 'disc_empty': declares no task"),
        ("disc_broken", "disc_broken.py:3: cannot be imported: ZeroDivisionError: division by zero"),
        ("disc_broken.py", "disc_broken.py:3: cannot be imported: ZeroDivisionError: division by zero"),
        ("disc_syntax", "disc_syntax.py:2: cannot be imported: SyntaxError: "),
        (
            "disc_imports",
            "disc_imports.py:2: cannot be imported: ModuleNotFoundError: No module named 'disc_gone'",
        ),
        (
            "disc_exits",
            "disc_exits.py:3: cannot be imported: it calls sys.exit(3); a module that is imported must not exit",
        ),
        ("disc_deep", "disc_broken.py:3: cannot be imported: ZeroDivisionError"),
        ("disc_parses", "disc_parses.py:3: cannot be imported: JSONDecodeError"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_told_with_its_cause(target: str, text: str, write: Write) -> None:
    write("disc_empty.py", "x = 1")
    write("disc_broken.py", "x = 0\n\ny = 1 / x\n")
    write("disc_syntax.py", "x = 1\ndef (:\n")
    write("disc_imports.py", "x = 1\nimport disc_gone\n")
    write("disc_exits.py", "import sys\n\nsys.exit(3)\n")
    write("disc_deep.py", "import disc_broken\n")
    write("disc_parses.py", "import json\n\njson.loads('{')\n")

    with pytest.raises(TaskDefinitionError) as caught:
        load_tasks([target])

    assert text in str(caught.value)
    assert [text in str(diagnostic) for diagnostic in collect([target]).errors] == [True]


def test_a_folder_is_told_with_the_files_in_it(write: Write) -> None:
    write("disc_jobs/__init__.py", "")
    write("disc_jobs/clean.py", "")
    write("disc_jobs/count.py", "")
    for target in ("disc_jobs", "disc_jobs/"):
        with pytest.raises(
            TaskDefinitionError, match=r"name a file in it: disc_jobs/clean.py, disc_jobs/count.py"
        ):
            load_tasks([target])


def test_the_folder_of_a_package_is_the_package(write: Write) -> None:
    write("below/disc_shop/__init__.py", "from .names import NAME\n" + declaring("sell"))
    write("below/disc_shop/names.py", "NAME = 'a'")

    for target in ("below/disc_shop", "below/disc_shop/", "below/disc_shop/__init__.py", "disc_shop"):
        [found] = load_tasks([target])
        assert found.fn.__module__ == "disc_shop"


def test_a_package_is_told_with_the_modules_in_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("elsewhere/disc_store/__init__.py", "")
    write("elsewhere/disc_store/buy.py", declaring("buy"))
    monkeypatch.syspath_prepend(str(path.parents[1]))

    with pytest.raises(TaskDefinitionError, match=r"a package.* name a module in it: disc_store\.buy"):
        load_tasks(["disc_store"])


def test_collect_continues_after_a_module_that_cannot_be_imported(write: Write) -> None:
    write("disc_half.py", "x = 1 / 0")
    write("disc_whole.py", declaring("whole"))

    found = collect(["disc_half", "disc_whole"])

    assert [task.name for task in found.tasks] == ["whole"]
    assert len(found.errors) == 1


def test_collect_leaves_no_module_behind_that_failed_to_import(write: Write) -> None:
    write("disc_policy.py", "from perago import RetryPolicy\nPOLICY = RetryPolicy(count=-1)\n")
    write("disc_user.py", declaring("user") + "from disc_policy import POLICY\n")
    assert len(collect(["disc_user"]).errors) == 1

    with pytest.raises(TaskDefinitionError, match=r"RetryPolicy\.count = -1"):
        load_tasks(["disc_user"])


def test_collect_reports_a_task_with_an_invalid_declaration(write: Write) -> None:
    write(
        "disc_inside.py",
        declaring("fine")
        + """
@task(name="wrong", owner_email="a@b.c", controls=__import__("perago").TaskControls(
    retry=RetryPolicy(count=-1),
))
def wrong(params: M) -> M: ...
""",
    )

    found = collect(["disc_inside"])

    assert [task.name for task in found.tasks] == ["fine"]
    assert [diagnostic.place.task for diagnostic in found.errors if diagnostic.place] == ["wrong"]


def test_collect_notes_two_modules_with_one_name(write: Write) -> None:
    write("disc_left.py", declaring("same"))
    write("disc_right.py", declaring("same"))

    [diagnostic] = collect(["disc_left", "disc_right"]).errors

    assert "is taken by the task at disc_left.py:8" in str(diagnostic)
