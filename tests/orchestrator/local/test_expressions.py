"""`${…}`: what is read, how it is written into text, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.local.expressions import java_text, resolve

SCOPE = {
    "workflow": {"input": {"x": 1, "name": "n"}, "workflowId": "w1"},
    "a": {
        "input": {"p": {"q": [10, 20]}},
        "output": {"list": [1, {"k": "v"}, None], "map": {"a-b": 1, "c": None}, "text": "t", "no": None},
        "status": "COMPLETED",
    },
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${workflow.input.x}", 1),
        ("${workflow.input}", {"x": 1, "name": "n"}),
        ("${workflow.workflowId}", "w1"),
        ("${a.input.p.q[1]}", 20),
        ("${a.output.list[1].k}", "v"),
        ("${a.output.list[-1]}", None),
        ("${a.output.list[-2]}", {"k": "v"}),
        ("${a.output.list[3]}", None),
        ("${a.output['map']['a-b']}", 1),
        ('${a.output["map"].c}', None),
        ("${a.output.map.a-b}", 1),
        ("${a.output.list.length()}", 3),
        ("${a.output.map.length()}", 2),
        ("${a.output.text.length()}", None),
        ("${a.output.text.more}", None),
        ("${a.output.text[0]}", None),
        ("${a.output.missing.deeper[0]}", None),
        ("${nobody.output.x}", None),
        ("${a.status}", "COMPLETED"),
    ],
)
def test_a_whole_expression_is_the_value_itself(text: str, value: Any) -> None:
    assert resolve(text, SCOPE) == value


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x=${workflow.input.x}", "x=1"),
        ("${workflow.input.x}${workflow.input.name}", "1n"),
        (" ${workflow.input.x}", " 1"),
        ("${a.output.missing}!", "null!"),
        ("${a.output.list}.", "[1, {k=v}, null]."),
        ("$${workflow.input.x}", "${workflow.input.x}"),
        ("$${x} ${workflow.input.x}", "${x} 1"),
        ("$ {x} $x {y}", "$ {x} $x {y}"),
        ("plain", "plain"),
    ],
)
def test_an_expression_inside_text_is_written_into_it(text: str, written: str) -> None:
    assert resolve(text, SCOPE) == written


def test_maps_and_lists_are_resolved_through_and_other_values_stay() -> None:
    value = {"m": {"l": ["${workflow.input.x}", {"s": "n ${a.status}"}]}, "n": 1.5, "t": True, "z": None}
    assert resolve(value, SCOPE) == {"m": {"l": [1, {"s": "n COMPLETED"}]}, "n": 1.5, "t": True, "z": None}


def test_a_copied_value_does_not_change_with_its_source() -> None:
    scope = {"a": {"output": {"list": [1]}}}
    taken = resolve({"all": "${a.output}"}, scope)
    scope["a"]["output"]["list"].append(2)
    assert taken == {"all": {"list": [1]}}


def test_the_task_id_is_known_only_to_a_tasks_own_input() -> None:
    assert resolve("${CPEWF_TASK_ID}", SCOPE, task_id="t1") == "t1"
    assert resolve("id ${CPEWF_TASK_ID}", SCOPE, task_id="t1") == "id t1"
    assert resolve("${CPEWF_TASK_ID}", SCOPE) == "${CPEWF_TASK_ID}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (12345678901234567890, "12345678901234567890"),
        (1.0, "1.0"),
        (-0.5, "-0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (-1.25e20, "-1.25E20"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        ({}, "{}"),
        ([], "[]"),
        ({"a": [True, {"b": 1.5}]}, "{a=[true, {b=1.5}]}"),
    ],
)
def test_values_are_written_as_java_writes_them(value: Any, text: str) -> None:
    assert java_text(value) == text
