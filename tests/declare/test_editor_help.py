"""Help in an editor while a task is being written, and type errors for a wrong keyword."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from textwrap import dedent

import pytest

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    task,
)
from tests.support.docs.sources import only_marked_lines_are_errors

DECLARED = [WorkspaceSpec, TaskControls, RetryPolicy, TimeoutPolicy, ExecutionLimits, PublishBudget]

SAMPLE = """
from pathlib import Path

from pydantic import BaseModel

from perago import *


class Params(BaseModel):
    day: str


@task(
    name="clean",
    owner_email="a@example.com",
    description="Cleans.",
    workspace=WorkspaceSpec(prefix="/a", pre=[require_glob("*.csv")], on_abandoned="reuse", placement="local"),
    controls=TaskControls(
        retry=RetryPolicy(count=1, logic="FIXED"),
        timeout=TimeoutPolicy(seconds=9, response_seconds=9, policy="RETRY"),
        limits=ExecutionLimits(concurrent_exec_limit=2),
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=1,
            safety_margin_seconds=1,
            lakefs_merge_timeout_seconds=2,
            conductor_completion_timeout_seconds=1,
            worker_shutdown_grace_seconds=1,
            heartbeat_interval_seconds=1,
        ),
    ),
    version="2",
    strict_params=False,
)
def clean(workspace: Path, params: Params) -> Params:
    return params


right: Params = clean(Path(), Params(day="mon"))
clean(Path())  # wrong: the decorated function keeps its signature


@task(name="typo", owner_email="a@example.com", retry=3)  # wrong: no such keyword
def typo(params: Params) -> Params:
    return params


@task()
def owned_by_a_default(params: Params) -> Params:
    return params


@task("positional", name="p", owner_email="a@example.com")  # wrong: keywords only
def positional(params: Params) -> Params:
    return params


WorkspaceSpec(prefx="/a")  # wrong
WorkspaceSpec(on_abandoned="superseed")  # wrong
WorkspaceSpec(read_only="yes")  # wrong
TaskControls(retries=3)  # wrong
TaskControls(timeout=3600)
TaskControls(timeout="1h")  # wrong
PublishBudget(observed_merge_p99_seconds=3)
RetryPolicy(cuont=3)  # wrong
RetryPolicy(logic="LINEAR")  # wrong
TimeoutPolicy(second=3)  # wrong
ExecutionLimits(concurrent=3)  # wrong
PublishBudget(merge=3)  # wrong
"""


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.__name__)
def test_every_field_has_a_text_that_an_editor_shows(declared: type) -> None:
    [definition] = ast.parse(dedent(inspect.getsource(declared))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {
        one.target.id: after.value.value
        for one, after in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }

    assert texts.keys() == declared.model_fields.keys()  # type: ignore[attr-defined]
    assert all(isinstance(text, str) and text.rstrip().endswith(".") for text in texts.values())


def test_every_keyword_of_the_decorator_is_explained_in_its_docstring() -> None:
    parameters = inspect.signature(task).parameters.values()
    keywords = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    explained = [line.split(":")[0] for line in inspect.getdoc(task).partition("Args:\n")[2].splitlines()]  # type: ignore[union-attr]

    assert [name.strip() for name in explained if name.count(" ") == 4] == keywords


@pytest.mark.slow
def test_a_wrong_keyword_or_value_is_a_type_error_to_mypy(tmp_path: Path) -> None:
    only_marked_lines_are_errors(SAMPLE, tmp_path)
