"""The supported part of JavaScript: what it evaluates to, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.local.js_interpreter import ScriptError, as_condition, run_script
from perago.orchestrator.local.js_parser import UnsupportedScript, parse_script

ROOT = {
    "loop": {"iteration": 2, "1": {"a": {"n": 5}}},
    "value": 3,
    "flag": True,
    "none": None,
    "text": "abc",
    "number_text": "10",
    "items": ["x", "y", "z"],
    "half": 0.5,
}


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("$.loop['iteration'] < $.value", True),
        ("$.loop.iteration < $.value", True),
        ('$["loop"]["1"].a.n', 5),
        ("if ($.loop['iteration'] < $.value) { true; } else { false; }", True),
        ("if ($.loop.iteration > $.value) { true } else { false }", False),
        ("if ($.value == 1) 'one'; else if ($.value == 3) 'three'; else 'many';", "three"),
        ("if (false) { 1; }", None),
        ("(function () { if ($.value > 5) { return 'big'; } return 'small'; })();", "small"),
        ("(function named() { return; })()", None),
        ("(function () { 1; })()", None),
        ("$.value == 3 ? 'yes' : 'no'", "yes"),
        ("$.flag ? $.none ? 1 : 2 : 3", 2),
        ("1 + 2 * 3 - 4 / 2 % 2", 7),
        ("(1 + 2) * 3", 9),
        ("4 / 2", 2),
        ("1 / 2", 0.5),
        ("-$.value + +$.number_text", 7),
        ("'a' + 1", "a1"),
        ("'a' + 1.0", "a1"),
        ("$.text + $.half", "abc0.5"),
        ("'10' < '9'", True),
        ("'10' < 9", False),
        ("$.number_text == 10", True),
        ("$.number_text === 10", False),
        ("$.number_text !== 10", True),
        ("1 === 1.0", True),
        ("true == 1", True),
        ("$.none == undefined", True),
        ("$.none === undefined", False),
        ("$.none == 0", False),
        ("null >= 0", True),
        ("undefined > 0", False),
        ("'' == 0", True),
        ("'x' == 0", False),
        ("$.items == $.items", True),
        ("$.items != 'x,y,z'", True),
        ("!$.none && !0 && !''", True),
        ("$.none || $.text", "abc"),
        ("$.text && $.value", 3),
        ("$.none && $.missing.deeper", None),
        ("$.none ?? 'default'", "default"),
        ("0 ?? 'default'", 0),
        ("$.items.length", 3),
        ("$.text.length", 3),
        ("$.items[1]", "y"),
        ("$.items[9]", None),
        ("$.text[0]", "a"),
        ("$.value.x", None),
        ("$.missing", None),
        ("undefined", None),
        ("'it\\'s \\n'", "it's \n"),
        ("// a note\n1 /* and */ + 1", 2),
        ("1\n2", 2),
        ("5 % 3", 2),
        ("1e3", 1000),
        ("!$.items", False),
    ],
)
def test_a_script_has_javascripts_value(script: str, value: Any) -> None:
    assert run_script(script, ROOT) == value
    assert type(run_script(script, ROOT)) is type(value)


@pytest.mark.parametrize(
    ("script", "value"), [("1 / 0", "inf"), ("-1 / 0", "-inf"), ("0 / 0", "nan"), ("1 % 0", "nan")]
)
def test_division_by_zero_is_no_error(script: str, value: str) -> None:
    assert str(run_script(script, ROOT)) == value


def test_a_number_that_is_not_one_is_false() -> None:
    assert run_script("0 / 0 ? 'yes' : 'no'", ROOT) == "no"
    assert run_script("$.missing - 1 == $.missing - 1", ROOT) is False


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("$.missing.x", "TypeError: Cannot read property 'x' of undefined"),
        ("$.none['x']", "TypeError: Cannot read property 'x' of null"),
    ],
)
def test_reading_from_nothing_fails_with_the_engines_text(script: str, text: str) -> None:
    with pytest.raises(ScriptError) as caught:
        run_script(script, ROOT)
    assert str(caught.value) == f"Error evaluating the script `{text}` at line 1"


@pytest.mark.parametrize(
    ("value", "goes_on"),
    [
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        (-1, False),
        (0.5, True),
        ("true", False),
        (None, False),
    ],
)
def test_a_condition_holds_for_true_and_for_numbers_above_zero(value: Any, goes_on: bool) -> None:
    assert as_condition(value) is goes_on


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("", "it is empty"),
        (";", "it is empty"),
        ("foo", "'foo' is not understood"),
        ("$.items.includes('x')", r"'\(' is not understood"),
        ("var x = 1; x", "'var' is not understood"),
        ("$.value = 3", "'=' is not understood"),
        ("while (true) {}", "'while' is not understood"),
        ("return true", "'return' is not understood"),
        ("$.value++", r"'\+\+' is not understood"),
        ("(x) => x", "'x' is not understood"),
        ("[1, 2].length", r"'\[' is not understood"),
        ("`text`", "'`' is not understood"),
        ("if ($.value < 3 { true; }", "expected"),
        ("if ($.value < 3) { true;", "it ends too early"),
        ("1 +", "it ends too early"),
        ("true\n\n&& eval('1')", "line 3: 'eval'"),
        ("1 2", "'2' is not understood"),
        ("$.", "it ends too early"),
        ("(function (a) { return a; })(1)", "expected"),
    ],
)
def test_anything_else_is_refused_and_says_what(script: str, what: str) -> None:
    with pytest.raises(UnsupportedScript, match=what):
        parse_script(script)
