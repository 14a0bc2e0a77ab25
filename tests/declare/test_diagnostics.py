"""Every wrong declaration, by name: one error that names the task, the field, the value and the rule."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from perago import TaskDefinitionError
from perago.declare.discovery import collect, load_tasks
from tests.declare.diagnostics import DIAGNOSTICS, FREE, HEAD, NAMELESS, OK, WITH, control


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], Path]:
    def write(source: str) -> Path:
        path = tmp_path / "declared.py"
        path.write_text(dedent(HEAD) + source)
        return path

    return write


each_diagnostic = pytest.mark.parametrize(("source", "text"), DIAGNOSTICS.values(), ids=DIAGNOSTICS)


@each_diagnostic
def test_a_wrong_declaration_fails_at_import_with_one_error(
    source: str, text: str, module: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    path = module(source)

    with pytest.raises(TaskDefinitionError) as caught:
        load_tasks([str(path)])

    said = str(caught.value)
    assert text in said
    assert said.startswith(f"{path}:"), "the error names the file"
    if request.node.callspec.id not in NAMELESS:
        assert ": task '" in said, "the error names the task"


@each_diagnostic
def test_a_wrong_declaration_is_recorded_and_the_import_continues(
    source: str, text: str, module: Callable[[str], Path]
) -> None:
    path = module(source + "\n@task(name='last', owner_email='a@b.c')\ndef last(params: P) -> R: ...\n")

    found = collect([str(path)])

    assert [task.name for task in found.tasks][-1:] == ["last"]
    assert any(text in str(diagnostic) for diagnostic in found.errors)
    assert "Traceback" not in " ".join(map(str, found.errors))


def test_a_policy_inside_a_decorator_is_told_with_its_own_line_and_the_task(
    module: Callable[[str], Path],
) -> None:
    path = module(
        "@task(\n    name='spread', owner_email='a@b.c',\n    controls=TaskControls(\n"
        "        retry=RetryPolicy(count=-1)))\n" + OK
    )
    line = path.read_text().splitlines().index("        retry=RetryPolicy(count=-1)))") + 1

    with pytest.raises(TaskDefinitionError, match=f":{line}: task 'spread': RetryPolicy.count = -1"):
        load_tasks([str(path)])


def test_several_violations_in_one_value_are_one_error_that_lists_them_all(
    module: Callable[[str], Path],
) -> None:
    path = module(control("retry=RetryPolicy(count=-1, logic='X')"))

    with pytest.raises(TaskDefinitionError, match=r"count = -1.*; RetryPolicy\.logic = 'X'"):
        load_tasks([str(path)])


def test_a_spark_workspace_without_the_extra_is_refused(
    module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    path = module(WITH + "def t(workspace: SparkWorkspace, params: P) -> R: ...")

    with pytest.raises(TaskDefinitionError, match=r"'workspace' = SparkWorkspace: needs the extra 'spark'"):
        load_tasks([str(path)])


def test_a_model_without_a_json_form_is_refused(module: Callable[[str], Path]) -> None:
    path = module(
        "from collections.abc import Callable\nclass Odd(BaseModel):\n    call: Callable[[], int]\n"
        + FREE
        + "def t(params: Odd) -> R: ..."
    )

    with pytest.raises(TaskDefinitionError, match="parameter 'params' = Odd: has no JSON form"):
        load_tasks([str(path)])


def test_a_wrapped_function_is_told_at_its_own_place(module: Callable[[str], Path]) -> None:
    path = module(
        "import functools\ndef loud(fn):\n    @functools.wraps(fn)\n    def inner(params):\n"
        "        return fn(params)\n    return inner\n" + FREE + "@loud\ndef t(params: P) -> R: ...\n"
    )

    [task] = load_tasks([str(path)])

    assert functools.reduce(getattr, ["__wrapped__", "__name__"], task.fn) == "t"
    assert "@task" in path.read_text().splitlines()[task.place.line - 1]
