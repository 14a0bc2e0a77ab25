"""A step of a Perago task: what it says in the workflow, what may be done with its output, and what may not."""

from __future__ import annotations

import copy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from conductor.client.workflow.task.simple_task import SimpleTask
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

import perago.workflow
from perago import TaskDefinitionError, WorkspaceSpec, task
from perago.orchestrator.conductor.workflow_objects import definition_of
from perago.workflow import INPUT_WORKSPACE, Workspace, expression, given, new_workflow, step
from perago.workflow.loading import load_definition


class Best(BaseModel):
    title: str
    count: int


class CleanParams(BaseModel):
    day: date | None = None
    min_seconds: int = Field(default=30, ge=0)


class Cleaned(BaseModel):
    count: int
    """A name that `str` has a method of."""
    best: Best | None = None
    files: list[str] = []
    by_song: dict[str, Best] = {}


class Song(BaseModel):
    title: str
    plays: int = 0


class CountParams(BaseModel):
    model_config = ConfigDict(validate_by_alias=True)

    top: int
    label: str = Field(default="", alias="labelText")
    songs: list[Song] = []
    until: date | None = None
    password: SecretStr | None = None

    @field_serializer("until")
    def shown(self, value: date) -> str:
        return value.isoformat()


@task(name="clean_plays", owner_email="a@b.c", workspace=WorkspaceSpec())
def clean_plays(workspace: Path, params: CleanParams) -> Cleaned: ...


@task(name="count_plays", owner_email="a@b.c", workspace=WorkspaceSpec(read_only=True))
def count_plays(workspace: Path, params: CountParams) -> Cleaned: ...


@task(name="ask", owner_email="a@b.c")
def ask(params: CountParams) -> Cleaned: ...


def cleaned() -> Any:
    return step(clean_plays, "clean", workspace=INPUT_WORKSPACE, params=CleanParams(min_seconds=5))


def test_the_module_exports_exactly_this() -> None:
    assert sorted(perago.workflow.__all__) == [
        "INPUT_WORKSPACE",
        "PublishedRun",
        "Run",
        "Step",
        "Workspace",
        "expression",
        "fork",
        "given",
        "new_workflow",
        "open_run",
        "step",
    ]


def test_a_step_is_one_of_the_official_client_and_says_only_what_its_author_wrote() -> None:
    made = cleaned()

    assert isinstance(made, SimpleTask)
    assert (made.name, made.task_reference_name) == ("clean_plays", "clean")
    assert made.input_parameters == {
        "workspace": "${workflow.input.workspace}",
        "params": {"min_seconds": 5},
    }


def test_a_task_without_a_workspace_gets_params_alone() -> None:
    made = step(ask, "ask", params=CountParams(top=1, labelText="x"))

    assert made.input_parameters == {"params": {"top": 1, "labelText": "x"}}
    with pytest.raises(TaskDefinitionError, match="step 'ask' has no workspace: its task declares none"):
        _ = made.workspace


def test_the_output_is_taken_apart_by_its_type() -> None:
    result = cleaned().result

    assert str(result) == "${clean.output.result}"
    assert result.count == "${clean.output.result.count}"
    assert result.best.title == "${clean.output.result.best.title}"
    assert result.files[0] == "${clean.output.result.files[0]}"
    assert result.by_song["la la"].count == "${clean.output.result.by_song['la la'].count}"
    assert cleaned().workspace.ref == "${clean.output.workspace.ref}"
    assert f"{result.count} plays" == "${clean.output.result.count} plays"
    assert "n=" + result.count + "!" == "n=${clean.output.result.count}!"


def test_params_hold_references_at_every_level_beside_values_as_the_model_writes_them() -> None:
    clean = cleaned()
    song = given(Song, title=clean.result.best.title)
    params = given(
        CountParams,
        top=clean.result.count,
        labelText=f"of {clean.result.count}",
        songs=[song, Song(title="a")],
    )
    params.until = date(2026, 11, 16)

    made = step(count_plays, "count", workspace=clean.workspace, params=params)

    assert made.input_parameters == {
        "workspace": "${clean.output.workspace}",
        "params": {
            "top": "${clean.output.result.count}",
            "labelText": "of ${clean.output.result.count}",
            "songs": [{"title": "${clean.output.result.best.title}"}, {"title": "a"}],
            "until": "2026-11-16",
        },
    }


def test_a_model_takes_a_part_that_is_given_later() -> None:
    params = CountParams(top=1, songs=[given(Song, title=cleaned().result.best.title)])

    made = step(ask, "ask", params=params)

    assert made.input_parameters["params"]["songs"] == [{"title": "${clean.output.result.best.title}"}]


def test_a_serializer_of_the_author_never_meets_a_reference() -> None:
    made = step(
        ask, "ask", params=given(CountParams, top=1, until=expression("${workflow.input.until}", date))
    )

    assert made.input_parameters["params"] == {"top": 1, "until": "${workflow.input.until}"}


def test_any_expression_can_be_given_a_type() -> None:
    best = expression("${other.output.best}", Best)

    assert best.count == "${other.output.best.count}"
    assert expression("${workflow.input.where}", Workspace).branch == "${workflow.input.where.branch}"
    assert expression("${workflow.input.n}", int) == "${workflow.input.n}"


def test_the_official_classes_may_copy_a_step_as_often_as_they_like() -> None:
    copied = copy.deepcopy(cleaned())

    assert copied.result.count == "${clean.output.result.count}"
    assert copied.workspace == "${clean.output.workspace}"


def count(**wrong: Any) -> Any:
    values = {"workspace": cleaned().workspace, "params": CountParams(top=1)} | wrong
    return step(count_plays, "count", **values)


CLEAN_RESULT = r"\$\{clean\.output\.result"
ERRORS: dict[str, tuple[Any, str]] = {
    "a misspelt field": (
        lambda: cleaned().result.cuont,
        CLEAN_RESULT + r"\} has no 'cuont'; did you mean 'count'",
    ),
    "a field of nothing like it": (
        lambda: cleaned().result.zzz,
        CLEAN_RESULT + r"\} has no 'zzz'; it has count, best, files, by_song",
    ),
    "a misspelt field further down": (
        lambda: cleaned().result.best.titel,
        r"best\} has no 'titel'; did you mean 'title'",
    ),
    "a method of a value": (
        lambda: cleaned().result.count.bit_length,
        r"count\} has no 'bit_length'; pass it on as it is",
    ),
    "a misspelt field of a workspace": (lambda: cleaned().workspace.brnch, "did you mean 'branch'"),
    "a misspelt output": (
        lambda: cleaned().wrkspace,
        "step 'clean' has no 'wrkspace'; did you mean 'workspace'",
    ),
    "another output": (
        lambda: cleaned().rows,
        "step 'clean' has no 'rows'; its output has workspace and result",
    ),
    "a sum": (lambda: cleaned().result.count + 1, r"count\} cannot be compared or calculated with"),
    "a sum the other way round": (
        lambda: 1 + cleaned().result.count,
        "cannot be compared or calculated with",
    ),
    "a product": (lambda: cleaned().result.count * 2, "cannot be compared or calculated with"),
    "a comparison": (lambda: cleaned().result.count > 3, "decide with a SwitchTask, or calculate in a task"),
    "a comparison for equality": (lambda: cleaned().result.count == 3, "decide with a SwitchTask"),
    "a comparison for difference": (lambda: cleaned().result.count != 3, "decide with a SwitchTask"),
    "a question": (lambda: bool(cleaned().result.count), "decide with a SwitchTask"),
    "a length": (lambda: len(cleaned().result.files), "decide with a SwitchTask"),
    "a loop": (lambda: list(cleaned().result.files), "decide with a SwitchTask"),
    "a misspelt param": (
        lambda: given(CountParams, tpo=1),
        "CountParams has no field 'tpo'; did you mean 'top'",
    ),
    "an unknown param": (lambda: given(Song, x=1), "Song has no field 'x'; it has title, plays"),
    "params by place": (
        lambda: given(CountParams, 3),
        r"given\(\) takes a params model and its fields by name",
    ),
    "no model": (lambda: given(dict, a=3), r"given\(\) takes a params model and its fields by name"),
    "a param that is missing": (
        lambda: count(params=given(CountParams)),
        "step 'count': params.top is missing",
    ),
    "a known param of a wrong type": (
        lambda: count(params=given(CountParams, top="x")),
        "step 'count': params.top: Input should be a valid integer",
    ),
    "another model": (
        lambda: count(params=CleanParams()),
        "params is CleanParams.*'count_plays' takes a CountParams",
    ),
    "a secret": (lambda: count(params=CountParams(top=1, password="x")), "must not contain a secret"),
    "no workspace": (
        lambda: count(workspace=None),
        "step 'count' has no workspace, .*workspace=INPUT_WORKSPACE",
    ),
    "a text for a workspace": (
        lambda: count(workspace="main"),
        "workspace is 'main'; give it INPUT_WORKSPACE",
    ),
    "a workspace for a task that has none": (
        lambda: step(ask, "ask", workspace=INPUT_WORKSPACE, params=CountParams(top=1)),  # type: ignore[call-overload]
        "its task 'ask' declares no workspace; take it out",
    ),
    "no task": (
        lambda: step(print, "x", params=Song(title="")),
        "print is not a task; decorate the function with @task",
    ),
    "no name": (lambda: step(ask, " ", params=CountParams(top=1)), "a step of 'ask' needs a unique name"),
    "no expression": (lambda: expression("day", str), "'day' is not an expression"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_line_with_the_authors_line(name: str) -> None:
    wrong, message = ERRORS[name]

    with pytest.raises(TaskDefinitionError, match=message) as raised:
        wrong()

    assert str(raised.value).startswith(f"{Path(__file__).relative_to(Path.cwd())}:")
    assert "\n" not in str(raised.value)


def test_hasattr_may_ask_a_step_and_a_reference() -> None:
    assert not hasattr(cleaned(), "nothing")
    assert not hasattr(cleaned().result, "nothing")


LOADED = """
from conductor.client.workflow.task.do_while_task import LoopTask
from conductor.client.workflow.task.fork_task import ForkTask
from conductor.client.workflow.task.switch_task import SwitchTask
from conductor.client.workflow.task.terminate_task import TerminateTask, WorkflowStatus

from tests.workflow.test_builder import *
from perago.workflow import new_workflow

plays = new_workflow("plays", owner_email="a@b.c", description="All kinds of steps")
clean = cleaned()
left, right = (count(params=CountParams(top=n)) for n in (1, 2))
left.task_reference_name, right.task_reference_name = "left", "right"
end = TerminateTask("end", WorkflowStatus.COMPLETED, "enough")
fork = ForkTask("side", [[step(ask, "a", params=CountParams(top=1))], [step(ask, "b", params=CountParams(top=2))]])
plays >> clean >> [left, right] >> fork >> LoopTask("loop", 2, [count()])
plays >> SwitchTask("pick", clean.result.best.title).switch_case("x", [end])
plays.output_parameters({"count": clean.result.count})
"""


def test_every_kind_of_step_becomes_the_json_that_conductor_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [str(Path.cwd()), *__import__("sys").path])
    (tmp_path / "flows.py").write_text(LOADED)

    made = load_definition(f"{tmp_path / 'flows.py'}:plays")

    kinds = [(one["taskReferenceName"], one["type"]) for one in made["tasks"]]
    assert kinds == [
        ("clean", "SIMPLE"),
        ("forked_1", "FORK_JOIN"),
        ("join_forked_1", "JOIN"),
        ("side", "FORK_JOIN"),
        ("join_side", "JOIN"),
        ("loop", "DO_WHILE"),
        ("pick", "SWITCH"),
    ]
    assert made["tasks"][2]["joinOn"] == ["left", "right"]
    assert made["tasks"][5]["loopOver"][0]["inputParameters"]["workspace"] == "${clean.output.workspace}"
    [end] = made["tasks"][6]["decisionCases"]["x"]
    assert end["inputParameters"] == {"terminationStatus": "COMPLETED", "terminationReason": "enough"}
    assert made["outputParameters"] == {"count": "${clean.output.result.count}"}
    assert (made["ownerEmail"], made["version"]) == ("a@b.c", 1)


class Titles(BaseModel):
    titles: list[str]


@task(name="list_titles", owner_email="a@b.c")
def list_titles(params: Titles) -> Cleaned: ...


def test_a_required_list_of_earlier_results_is_not_missing() -> None:
    texts = [cleaned().result.files[0], "fixed"]

    made = step(list_titles, "titles", params=given(Titles, titles=texts))

    assert made.input_parameters["params"] == {"titles": ["${clean.output.result.files[0]}", "fixed"]}


def test_a_workflow_takes_its_steps_and_its_output_at_once() -> None:
    clean = cleaned()
    made = new_workflow(
        "plays",
        clean,
        count(),
        owner_email="a@b.c",
        version=3,
        description="Two steps",
        output={"count": clean.result.count, "of": {"all": [clean.workspace.ref]}, "fixed": 1},
    )

    definition = definition_of(made, "flows.py:plays")

    assert [one["taskReferenceName"] for one in definition["tasks"]] == ["clean", count().task_reference_name]
    assert (definition["name"], definition["version"], definition["ownerEmail"]) == ("plays", 3, "a@b.c")
    assert definition["description"] == "Two steps"
    assert definition["outputParameters"] == {
        "count": "${clean.output.result.count}",
        "of": {"all": ["${clean.output.workspace.ref}"]},
        "fixed": 1,
    }


def test_steps_can_still_be_added_with_the_clients_operator() -> None:
    at_once, added = new_workflow("plays", cleaned(), count()), new_workflow("plays") >> cleaned() >> count()

    assert definition_of(at_once, "x") == definition_of(added, "x")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: new_workflow(""), "a workflow needs a name, and got ''"),
        (lambda: new_workflow(cleaned()), "a workflow needs a name, and got"),
        (
            lambda: new_workflow("p", [cleaned(), count()]),
            'is not a step; put steps that run in parallel into fork("…", [first], [second])',
        ),
        (lambda: new_workflow("p", clean_plays), "is not a step; make a step of a task with step(task, …)"),
        (lambda: new_workflow("p", cleaned(), output=3), "workflow 'p': output is 3; name its values"),
    ],
)
def test_a_wrong_workflow_names_the_line(make: Any, says: str) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        make()

    assert says in str(refused.value)
    assert "test_builder.py:" in str(refused.value)


def test_a_step_after_a_fork_joins_a_list_of_workspaces() -> None:
    left = step(clean_plays, "left", workspace=INPUT_WORKSPACE, params=CleanParams())
    right = step(clean_plays, "right", workspace=INPUT_WORKSPACE, params=CleanParams())
    joined = step(clean_plays, "both", workspace=[left.workspace, right.workspace], params=CleanParams())
    assert joined.input_parameters["workspace"] == [
        "${left.output.workspace}",
        "${right.output.workspace}",
    ]


@pytest.mark.parametrize("wrong", [[], ["${left.output.workspace}"], [INPUT_WORKSPACE, 7]])
def test_a_list_of_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(TaskDefinitionError, match="or a list of those to join"):
        step(clean_plays, "both", workspace=wrong, params=CleanParams())
