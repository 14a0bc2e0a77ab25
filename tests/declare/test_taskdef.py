"""The TaskDef of a task, and how it is compared with a server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskDefinition,
    TimeoutPolicy,
    WorkspaceSpec,
    build_taskdef,
    task,
    write_taskdef,
)
from perago.declare.taskdef import declaration_warnings, difference, merge_taskdef, taskdef_warnings


class Item(BaseModel):
    name: str
    properties: dict[str, int] = {}


class Params(BaseModel):
    items: list[Item]
    limit: int | None = None
    stem: str = Field(default="x", alias="theStem")


class Result(BaseModel):
    rows: int = Field(alias="rowCount")
    first: Item | None = None


BUDGET = PublishBudget(
    observed_merge_p99_seconds=20,
    safety_margin_seconds=10,
    lakefs_merge_timeout_seconds=30,
    conductor_completion_timeout_seconds=15,
    worker_shutdown_grace_seconds=40,
    heartbeat_interval_seconds=5,
)


def declared(**fields: Any) -> TaskDefinition:
    if fields.get("workspace"):

        def fn(workspace: Path, params: Params) -> Result:
            return Result(rowCount=0)
    else:

        def fn(params: Params) -> Result:  # type: ignore[misc]
            return Result(rowCount=0)

    decorated = task(name="defined", owner_email="a@b.c", **fields)(fn)
    found: TaskDefinition = decorated.__perago_task__  # type: ignore[attr-defined]
    return found


FULL = declared(
    description="all of it",
    workspace=WorkspaceSpec(prefix="/a"),
    controls=TaskControls(
        retry=RetryPolicy(
            count=7, logic="EXPONENTIAL_BACKOFF", delay_seconds=8, max_delay_seconds=90, jitter_ms=100
        ),
        timeout=TimeoutPolicy(
            policy="ALERT_ONLY", seconds=500, response_seconds=400, poll_seconds=30, total_seconds=1000
        ),
        limits=ExecutionLimits(
            concurrent_exec_limit=4, rate_limit_per_frequency=5, rate_limit_frequency_in_seconds=6
        ),
        publish_budget=BUDGET,
    ),
)


def test_every_field_that_the_controls_name_is_written() -> None:
    taskdef = build_taskdef(FULL)

    schemas = {"inputSchema", "outputSchema"}
    assert {name: value for name, value in taskdef.items() if name not in schemas} == {
        "name": "defined",
        "description": "all of it",
        "ownerEmail": "a@b.c",
        "retryCount": 7,
        "retryLogic": "EXPONENTIAL_BACKOFF",
        "retryDelaySeconds": 8,
        "maxRetryDelaySeconds": 90,
        "backoffJitterMs": 100,
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 500,
        "responseTimeoutSeconds": 400,
        "pollTimeoutSeconds": 30,
        "totalTimeoutSeconds": 1000,
        "concurrentExecLimit": 4,
        "rateLimitPerFrequency": 5,
        "rateLimitFrequencyInSeconds": 6,
        "inputKeys": ["workspace", "params"],
        "outputKeys": ["workspace", "result"],
    }


def test_undeclared_values_are_written_as_conductor_writes_none() -> None:
    taskdef = build_taskdef(declared())

    assert taskdef["description"] == ""
    assert taskdef["concurrentExecLimit"] == taskdef["rateLimitPerFrequency"] == 0
    assert taskdef["rateLimitFrequencyInSeconds"] == 1
    assert taskdef["inputKeys"] == ["params"]
    assert taskdef["outputKeys"] == ["result"]


def test_the_input_schema_closes_every_level_of_strict_params() -> None:
    schema = build_taskdef(FULL)["inputSchema"]

    assert {name: schema[name] for name in ("name", "version", "type")} == {
        "name": "defined.input",
        "version": 1,
        "type": "JSON",
    }
    data = schema["data"]
    assert data["required"] == ["workspace", "params"]
    assert data["additionalProperties"] is False
    assert data["properties"]["params"]["additionalProperties"] is False
    assert data["properties"]["params"]["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert "theStem" in data["properties"]["params"]["properties"]
    item = data["$defs"]["Item"]
    assert item["additionalProperties"] is False
    assert item["properties"]["properties"]["additionalProperties"] == {"type": "integer"}


def test_the_input_schema_leaves_lenient_params_open() -> None:
    data = build_taskdef(declared(strict_params=False))["inputSchema"]["data"]

    assert "additionalProperties" not in data["properties"]["params"]
    assert "additionalProperties" not in data["$defs"]["Item"]


def test_the_output_schema_is_that_of_what_is_dumped() -> None:
    data = build_taskdef(FULL)["outputSchema"]["data"]

    assert data["required"] == ["workspace", "result"]
    assert set(data["properties"]["result"]["properties"]) == {"rows", "first"}


def test_a_workspace_travels_with_ref_type_or_ref_type_in_camel_case() -> None:
    workspace = build_taskdef(FULL)["inputSchema"]["data"]["properties"]["workspace"]["anyOf"][0]

    assert set(workspace["properties"]) == {"repository", "branch", "ref_type", "refType", "ref"}
    assert workspace["required"] == ["repository", "branch", "ref"]
    assert workspace["not"] == {"required": ["ref_type", "refType"]}
    assert workspace["additionalProperties"] is False


def test_an_input_may_have_a_list_of_workspaces_and_an_output_has_one() -> None:
    one, several = build_taskdef(FULL)["inputSchema"]["data"]["properties"]["workspace"]["anyOf"]
    assert several == {"type": "array", "items": one, "minItems": 1}
    assert build_taskdef(FULL)["outputSchema"]["data"]["properties"]["workspace"]["type"] == "object"


def test_an_output_workspace_always_says_what_its_ref_is() -> None:
    given = build_taskdef(FULL)["inputSchema"]["data"]["properties"]["workspace"]["anyOf"][0]
    made = build_taskdef(FULL)["outputSchema"]["data"]["properties"]["workspace"]

    assert made["oneOf"] == [{"required": ["ref_type"]}, {"required": ["refType"]}]
    assert made["properties"] == given["properties"]


def test_a_taskdef_is_written_as_one_json_object(tmp_path: Path) -> None:
    written = write_taskdef(FULL, tmp_path / "defs" / "defined.json")

    assert json.loads(written.read_text()) == build_taskdef(FULL)


def test_a_response_time_out_below_the_budget_is_warned_of_and_not_changed() -> None:
    short = declared(
        workspace=WorkspaceSpec(),
        controls=TaskControls(timeout=TimeoutPolicy(response_seconds=89), publish_budget=BUDGET),
    )

    [warning] = taskdef_warnings(short)

    assert "'defined': controls.timeout.response_seconds = 89 is shorter than the publish budget" in warning
    assert "needs 90" in warning
    assert build_taskdef(short)["responseTimeoutSeconds"] == 89


def test_a_response_time_out_that_covers_the_budget_is_not_warned_of() -> None:
    enough = declared(
        workspace=WorkspaceSpec(),
        controls=TaskControls(timeout=TimeoutPolicy(response_seconds=90), publish_budget=BUDGET),
    )

    assert taskdef_warnings(enough) == []
    assert taskdef_warnings(declared()) == []


def test_a_budget_of_a_read_only_task_is_warned_of() -> None:
    unused = declared(workspace=WorkspaceSpec(read_only=True), controls=TaskControls(publish_budget=BUDGET))

    assert taskdef_warnings(unused) == [
        "task 'defined': controls.publish_budget is not used: read_only=True publishes nothing"
    ]


def test_fields_that_the_server_adds_are_no_difference() -> None:
    wanted = build_taskdef(FULL)
    actual = {
        **wanted,
        "createTime": 5,
        "inputTemplate": {"a": 1},
        "inputSchema": {**wanted["inputSchema"], "createTime": 0},
    }

    assert difference(wanted, actual) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"retryCount": 9}, [("retryCount", 7, 9)]),
        ({"pollTimeoutSeconds": None}, [("pollTimeoutSeconds", 30, None)]),
        ({"inputSchema": None}, ["inputSchema"]),
        ({"inputKeys": ["params"]}, [("inputKeys", ["workspace", "params"], ["params"])]),
    ],
)
def test_a_field_that_differs_is_named_with_both_values(change: dict[str, Any], found: list[Any]) -> None:
    wanted = build_taskdef(FULL)

    differing = difference(wanted, {**wanted, **change})

    assert [
        item if isinstance(expected, tuple) else item[0]
        for item, expected in zip(differing, found, strict=True)
    ] == found


def test_a_schema_differs_both_ways() -> None:
    wanted = build_taskdef(FULL)
    actual = json.loads(json.dumps(wanted))
    actual["inputSchema"]["data"]["properties"]["params"]["properties"]["gone"] = {"type": "string"}
    del actual["outputSchema"]["data"]["$defs"]["Item"]["properties"]["name"]

    found = {path: (new, old) for path, new, old in difference(wanted, actual)}

    assert found["inputSchema.data.properties.params.properties.gone"] == (None, {"type": "string"})
    assert found["outputSchema.data.$defs.Item.properties.name"][1] is None
    assert len(found) == 2


def test_fields_that_others_set_on_the_server_are_kept_when_merged() -> None:
    wanted = build_taskdef(FULL)

    sent = merge_taskdef(wanted, {"retryCount": 1, "inputTemplate": {"a": 1}})

    assert sent["retryCount"] == 7
    assert sent["inputTemplate"] == {"a": 1}
    assert merge_taskdef(wanted, None) == wanted


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (TimeoutPolicy(), "controls.timeout has no total time-out"),
        (TimeoutPolicy(seconds=900, policy="ALERT_ONLY"), "'ALERT_ONLY' ends nothing"),
    ],
)
def test_a_task_that_nothing_ends_is_warned_of(timeout: TimeoutPolicy, text: str) -> None:
    endless = declared(controls=TaskControls(timeout=timeout))

    [warning] = declaration_warnings(endless)

    assert warning.startswith("task 'defined': controls.timeout")
    assert text in warning
    assert taskdef_warnings(endless) == []


@pytest.mark.parametrize("timeout", [TimeoutPolicy(seconds=900), TimeoutPolicy(total_seconds=900)])
def test_a_task_with_a_total_time_out_is_not_warned_of(timeout: TimeoutPolicy) -> None:
    assert declaration_warnings(declared(controls=TaskControls(timeout=timeout))) == []
