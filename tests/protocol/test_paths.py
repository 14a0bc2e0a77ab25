"""The path rules: what each catches, that callers report the first broken one, and that no other module has its own."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import perago
from perago.protocol import paths
from perago.protocol.paths import Rule, either, first_broken, has_nul, is_absolute, is_empty, leads_out
from tests.support.docs.sources import parsed

SRC = Path(perago.__file__).parent
FINE = ["a", "a/b.csv", "a b/c#d%20+.txt", "日本/emoji 🎧.bin", "x" * 255, "..a/b..", "a.b/.c", "-", "~"]
BREAKS = {
    paths.is_empty: [""],
    paths.is_absolute: ["/", "/etc/passwd"],
    paths.has_drive: ["C:", "c:/a", "d:a"],
    paths.has_scheme: ["s3a://bucket/a", "C:/a", "a:b/c"],
    paths.has_empty_part: ["", "/a", "a/", "a//b"],
    paths.has_dot_part: [".", "./a", "a/./b", "a/."],
    paths.leads_out: ["..", "../a", "a/../b", "a/.."],
    paths.has_nul: ["\0", "a\0b"],
    paths.has_backslash: ["a\\b"],
    paths.has_control_character: ["a\nb", "a\0b", "a\x7fb", "a\ud800"],
    paths.has_outer_space: [" a", "a ", "\ta"],
    paths.has_long_part: ["x" * 256, "a/" + "é" * 128, "\udc80" * 86],
    paths.is_not_unicode: ["a/\udcff.txt"],
    paths.has_wildcard: ["*", "a/b?", "[a]", "{a,b}"],
    paths.has_loose_double_star: ["a**", "a/**b/c", "***"],
    paths.is_marker: [".perago-attempt.json", "a/.perago-attempt.json"],
    paths.has_marker_part: [".perago-attempt.json", "a/.perago-attempt.json/b"],
    paths.in_actions: ["_lakefs_actions/fence.yaml", "_lakefs_actions/"],
}
NEARLY = {
    paths.has_scheme: "a/b:c",
    paths.has_loose_double_star: "a/**/b",
    paths.is_marker: ".perago-attempt.json/b",
    paths.in_actions: "_lakefs_actions_of_mine/a",
}


@pytest.mark.parametrize(("rule", "path"), [(rule, path) for rule, found in BREAKS.items() for path in found])
def test_a_rule_catches_its_paths(rule: Rule, path: str) -> None:
    assert rule(path)


@pytest.mark.parametrize("rule", BREAKS)
def test_honest_paths_break_no_rule(rule: Rule) -> None:
    assert not any(map(rule, FINE))


@pytest.mark.parametrize(("rule", "path"), NEARLY.items())
def test_a_rule_lets_pass_what_only_looks_alike(rule: Rule, path: str) -> None:
    assert not rule(path)


def test_every_rule_is_tried_here() -> None:
    rules = {
        function
        for name, function in vars(paths).items()
        if inspect.isfunction(function) and name not in ("either", "first_broken")
    }

    assert rules == set(BREAKS)


def test_the_first_rule_that_is_broken_is_told() -> None:
    table = ((is_empty, "empty"), (either(is_absolute, has_nul), "absolute or NUL"), (leads_out, "out"))

    assert [first_broken(path, table) for path in ("", "/..", "a\0/..", "../a", "a")] == [
        "empty",
        "absolute or NUL",
        "absolute or NUL",
        "out",
        None,
    ]


def test_no_other_module_checks_for_parts_that_lead_out_or_for_reserved_names() -> None:
    ours = {"..", "\0", paths.MARKER, paths.ACTIONS}
    found = []
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if path != Path(paths.__file__) and isinstance(node, ast.Constant) and node.value in ours:
                found.append(f"{path.relative_to(SRC)}:{node.lineno}: {node.value!r}")

    # A key of the embedded lake's trees, which has to sort after its folder.
    assert [line for line in found if not line.startswith("lake/local/trees.py")] == []
