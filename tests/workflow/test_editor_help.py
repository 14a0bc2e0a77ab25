"""Type errors in a step: a wrong param, a wrong keyword, a wrong field of a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.sources import only_marked_lines_are_errors

SAMPLE = """
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.workflow import INPUT_WORKSPACE, Step, Workspace, expression, given, new_workflow, step


class CleanParams(BaseModel):
    min_seconds: int = 30


class Cleaned(BaseModel):
    kept: int
    name: str


class CountParams(BaseModel):
    top: int


@task(name="clean", owner_email="a@example.com", workspace=WorkspaceSpec())
def clean_plays(workspace: Path, params: CleanParams) -> Cleaned:
    return Cleaned(kept=1, name="")


@task(name="count", owner_email="a@example.com", workspace=WorkspaceSpec())
def count_plays(workspace: Path, params: CountParams) -> Cleaned:
    return Cleaned(kept=1, name="")


@task(name="ask", owner_email="a@example.com")
def ask(params: CountParams) -> Cleaned:
    return Cleaned(kept=1, name="")


START = INPUT_WORKSPACE
clean: Step[Cleaned] = step(clean_plays, "clean", workspace=START, params=CleanParams(min_seconds=3))
asked = step(ask, "ask", params=given(CountParams, top=expression("${workflow.input.top}", int)))
elsewhere = expression("${workflow.input.other}", Workspace)
count = step(count_plays, "count", workspace=elsewhere, params=given(CountParams, top=clean.result.kept))
kept: int = clean.result.kept
commit: str = count.workspace.ref
plays = new_workflow("plays", clean, count, asked, version=2, owner_email="a@example.com", output={"kept": kept})

step(clean_plays, "x", workspace=START, params=CleanParams(min_seconds="a"))  # wrong: the type of a param
step(clean_plays, "x", workspace=START, params=CleanParams(min_secnds=1))  # wrong: a param's name
step(clean_plays, "x", workspace=START, params=CountParams(top=1))  # wrong: another task's params
step(clean_plays, "x", workspace=START, parms=CleanParams())  # wrong: a keyword
step(clean_plays, "x", params=CleanParams())  # wrong: no workspace
step(ask, "x", workspace=START, params=CountParams(top=1))  # wrong: a workspace for a task without one
step(clean_plays, "x", workspace="main", params=CleanParams())  # wrong: no workspace, a text
step(clean_plays, "x", workspace=clean.result, params=CleanParams())  # wrong: no workspace, a result
given(CountParams, top=clean.result.name)  # wrong: the type of an earlier result
given(CountParams, tpo=clean.result.kept)  # wrong: a param's name
given(CountParams)  # wrong: a param is missing
given(CountParams, top=clean.workspace)  # wrong: a workspace for a number
given(CountParams, top=expression("${workflow.input.top}", str))  # wrong: the type of an input
clean.result.keept  # wrong: a field of a result
clean.workspace.reff  # wrong: a field of a workspace
new_workflow(name="x", vresion=1)  # wrong: a keyword
"""


@pytest.mark.slow
def test_wrong_params_keywords_and_results_are_type_errors_to_mypy(tmp_path: Path) -> None:
    only_marked_lines_are_errors(SAMPLE, tmp_path, "--strict")
