"""Valid declarations with `@task`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from perago import SparkWorkspace, TaskControls, TaskDefinition, WorkspaceSpec, task


class Params(BaseModel):
    stem: str


class Result(BaseModel):
    rows: int


@task(name="workspace_task", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/audio"))
def workspace_task(workspace: Path, params: Params) -> Result:
    """Count the files of a workspace."""
    return Result(rows=len(list(workspace.iterdir())))


@task(name="free.task", owner_email="a@example.com", description="adds", version="2", strict_params=False)
def free_task(params: Params) -> Result:
    return Result(rows=len(params.stem))


def definition(fn: object) -> TaskDefinition:
    found = fn.__perago_task__  # type: ignore[attr-defined]
    assert isinstance(found, TaskDefinition)
    return found


def test_a_workspace_task_is_read_from_its_signature() -> None:
    found = definition(workspace_task)

    assert (found.name, found.kind, found.has_workspace) == ("workspace_task", "plain", True)
    assert found.params_model is Params
    assert found.result_model is found.output_model is Result
    assert found.workspace == WorkspaceSpec(prefix="audio")


def test_a_task_without_a_workspace_says_all_that_the_decorator_was_told() -> None:
    found = definition(free_task)

    assert (found.description, found.version, found.strict_params) == ("adds", "2", False)
    assert found.workspace is None
    assert found.fn is free_task


def test_omitted_arguments_of_the_decorator_have_defaults() -> None:
    found = definition(workspace_task)

    assert (found.description, found.version, found.strict_params) == (None, "1", True)
    assert found.controls == TaskControls()


def test_the_decorated_function_is_still_the_function(tmp_path: Path) -> None:
    (tmp_path / "one.txt").touch()

    assert workspace_task(tmp_path, Params(stem="x")) == Result(rows=1)
    assert free_task(params=Params(stem="abc")) == Result(rows=3)
    assert workspace_task.__doc__ == "Count the files of a workspace."


def test_a_definition_knows_its_file_and_line() -> None:
    place = definition(workspace_task).place

    assert Path(place.file) == Path(__file__)
    assert "@task" in Path(__file__).read_text().splitlines()[place.line - 1]


def test_models_of_a_test_function_are_found_although_annotations_are_strings() -> None:
    class Local(BaseModel):
        a: int

    @task(name="local", owner_email="a@example.com")
    def local(params: Local) -> Local:
        return params

    assert definition(local).params_model is Local


def test_a_function_with_a_spark_workspace_is_a_spark_task(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("pyspark")
    installed.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "pyspark", installed)

    @task(name="spark", owner_email="a@example.com", workspace=WorkspaceSpec(placement="direct"))
    def spark(workspace: SparkWorkspace, params: Params) -> Result:
        return Result(rows=0)

    assert definition(spark).kind == "spark"


def test_a_reloaded_declaration_takes_the_place_of_the_first() -> None:
    def declare() -> TaskDefinition:
        @task(name="again", owner_email="a@example.com")
        def again(params: Params) -> Result:
            return Result(rows=0)

        return definition(again)

    assert declare().place == declare().place


class TestDefaults:
    def test_a_task_is_called_like_its_function_unless_it_has_a_name(self) -> None:
        @task(owner_email="a@example.com")
        def clean_plays(params: Params) -> Params:
            return params

        assert clean_plays.__perago_task__.name == "clean_plays"  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("module", "setting", "owner"),
        [
            ("module@example.com", None, "module@example.com"),
            (None, "env@example.com", "env@example.com"),
            ("module@example.com", "env@example.com", "module@example.com"),
        ],
        ids=["of the module", "of the environment", "the module before the environment"],
    )
    def test_an_owner_that_is_left_out_is_the_default(
        self, module: str | None, setting: str | None, owner: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if setting is not None:
            monkeypatch.setenv("PERAGO_OWNER_EMAIL", setting)
        if module is not None:
            monkeypatch.setitem(globals(), "__owner_email__", module)

        @task(name="owned")
        def owned(params: Params) -> Params:
            return params

        assert owned.__perago_task__.owner_email == owner  # type: ignore[attr-defined]

    def test_an_owner_of_the_task_counts_before_every_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERAGO_OWNER_EMAIL", "env@example.com")
        monkeypatch.setitem(globals(), "__owner_email__", "module@example.com")

        @task(owner_email="own@example.com")
        def owned_by_itself(params: Params) -> Params:
            return params

        assert owned_by_itself.__perago_task__.owner_email == "own@example.com"  # type: ignore[attr-defined]
