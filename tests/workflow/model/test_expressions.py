"""`${…}` as it is written: which expressions a value holds, and the parts of a path."""

from __future__ import annotations

import pytest

from perago.workflow.model.expressions import LENGTH, Part, expressions_in, parse_path, source_of, understood


@pytest.mark.parametrize(
    "path",
    [
        "",
        " a.output",
        "a.output.x ",
        "a.output[*]",
        "a.output..x",
        "a.output[?(@.x)]",
        "a.output[0:2]",
        "a.output.x.min()",
        "a.output.length().x",
        "workflow.secrets.key",
        "workflow.env.HOME",
    ],
)
def test_a_path_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"not supported|not a supported path"):
        parse_path(path)


def test_every_expression_of_a_value_is_found() -> None:
    value = {"a": "${x.output} and ${y.input}", "b": [{"c": "${z.status}"}], "d": "$${no}", "e": 1}
    assert list(expressions_in(value)) == ["x.output", "y.input", "z.status"]


def test_an_expression_inside_an_expression_is_refused() -> None:
    found = list(expressions_in("${a.output.${b.output.key}}"))
    assert found == ["${a.output.${b.output.key}}"]
    with pytest.raises(ValueError, match="not a supported path"):
        source_of(found[0])


def test_the_source_of_an_expression_is_its_task() -> None:
    assert source_of("clean.output.x") == "clean"
    assert source_of("workflow.input.x") is None
    assert source_of("CPEWF_TASK_ID") is None


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("one.output.rows", ("one", "output", "rows")),
        ("one.output['a b'][0].length()", ("one", "output", "a b", 0, LENGTH)),
        ("one.output.list[*].x", ("one", "output", "list")),
        ("", ()),
    ],
)
def test_a_path_is_understood_up_to_what_only_conductor_knows(path: str, parts: tuple[Part, ...]) -> None:
    found, end = understood(path)

    assert found == parts
    assert (end == len(path)) == ("*" not in path)
