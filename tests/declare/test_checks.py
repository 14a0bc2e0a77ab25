"""Checks say which pattern, in which phase, and what was there instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from perago import (
    GuardrailViolation,
    PostGuardrailViolation,
    PreGuardrailViolation,
    TaskFailed,
    TaskTerminalError,
    check_guardrails,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
)
from perago.declare.checks import (
    Check,
    FolderTree,
    ListingTree,
    PathCheck,
    Phase,
    Tree,
    evaluate_checks,
    label,
    needs_path,
    run_checks,
)
from perago.protocol.attempt_record import CheckRecord

TREE = ListingTree(["raw/a.json", "raw/b.json", "tmp/x", *(f"many/{n}.txt" for n in range(9))])


@pytest.mark.parametrize(
    "check",
    [
        require_file("raw/a.json"),
        require_dir("raw"),
        require_glob("raw/*.json"),
        require_glob("raw/*.json", min_count=2, max_count=2),
        require_glob("raw/*.csv", min_count=0),
        forbid_glob("raw/*.csv"),
        forbid_glob("raw/*.json", max_count=2),
        require_file(Path("raw") / "a.json"),
    ],
    ids=label,
)
def test_a_check_that_holds_says_nothing(check: Check) -> None:
    run_checks("pre", [check], TREE)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (require_file("raw/c.json"), "there is no such file; raw/ holds a.json, b.json"),
        (require_file("no/where/c.json"), "there is no such file; the workspace holds many/, raw/, tmp/"),
        (require_file("raw"), "it is a folder, not a file"),
        (require_dir("raw/a.json"), "it is a file, not a folder"),
        (require_dir("built"), "there is no such folder; the workspace holds many/, raw/, tmp/"),
        (require_glob("raw/*.csv"), "it matched nothing, 1 or more are required; raw/ holds a.json, b.json"),
        (
            require_glob("raw/*.json", min_count=3),
            "it matched 2 paths (raw/a.json, raw/b.json), 3 or more are required; raw/ holds a.json, b.json",
        ),
        (
            require_glob("raw/*.json", max_count=1),
            "it matched 2 paths (raw/a.json, raw/b.json), at most 1 are allowed",
        ),
        (forbid_glob("tmp/**"), "it matched 1 path (tmp/x), none is allowed"),
        (
            forbid_glob("raw/*", max_count=1),
            "it matched 2 paths (raw/a.json, raw/b.json), at most 1 are allowed",
        ),
        (
            forbid_glob("many/*"),
            "it matched 9 paths (many/0.txt, many/1.txt, many/2.txt, many/3.txt, many/4.txt, …), none is allowed",
        ),
        (
            require_file("many/x"),
            "there is no such file; many/ holds 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, …",
        ),
    ],
    ids=lambda value: label(value) if isinstance(value, PathCheck) else None,
)
@pytest.mark.parametrize(
    ("phase", "family"), [("pre", PreGuardrailViolation), ("post", PostGuardrailViolation)]
)
def test_a_check_that_does_not_hold_says_what_was_there(
    phase: Phase, family: type[Exception], check: PathCheck, text: str
) -> None:
    with pytest.raises(family) as caught:
        run_checks(phase, [check], TREE)

    assert str(caught.value) == f"{phase} check {check.label()} failed: {text}"


def test_an_empty_workspace_is_said_to_be_empty() -> None:
    with pytest.raises(PreGuardrailViolation, match="the workspace is empty"):
        run_checks("pre", [require_glob("*")], ListingTree([]))


def test_a_check_is_a_value_that_reads_as_it_was_written() -> None:
    assert require_glob("a/*") == require_glob("a/*", min_count=1)
    assert label(require_glob("a/*", max_count=3)) == "require_glob('a/*', min_count=1, max_count=3)"
    assert label(require_file("a")) == "require_file('a')"


def test_a_callable_gets_the_folder_and_the_params(tmp_path: Path) -> None:
    seen: list[object] = []

    run_checks(
        "post", [lambda workdir, params: seen.append((workdir, params))], FolderTree(tmp_path), {"a": 1}
    )

    assert seen == [(tmp_path, {"a": 1})]


def raising(error: Exception) -> Check:
    def own_check(workdir: Path, params: Any) -> NoReturn:
        raise error

    return own_check


@pytest.mark.parametrize(
    ("phase", "raised", "family"),
    [
        ("pre", ValueError("odd"), PreGuardrailViolation),
        ("pre", GuardrailViolation("odd"), PreGuardrailViolation),
        ("pre", PostGuardrailViolation("odd"), PreGuardrailViolation),
        ("pre", TaskTerminalError("odd"), PreGuardrailViolation),
        ("pre", TaskFailed("odd"), TaskFailed),
        ("post", ValueError("odd"), PostGuardrailViolation),
        ("post", PreGuardrailViolation("odd"), PostGuardrailViolation),
        ("post", TaskTerminalError("odd"), PostGuardrailViolation),
        ("post", TaskFailed("odd"), TaskFailed),
    ],
)
def test_an_exception_of_a_callable_becomes_the_error_of_its_phase(
    phase: Phase, raised: Exception, family: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(family) as caught:
        run_checks(phase, [raising(raised)], FolderTree(tmp_path))

    assert type(caught.value) is family
    assert "odd" in str(caught.value)
    assert raised in (caught.value, caught.value.__cause__)


def test_a_callable_that_returns_false_has_said_no(tmp_path: Path) -> None:
    with pytest.raises(PostGuardrailViolation, match="it returned False; a check says no by raising"):
        run_checks("post", [lambda workdir, params: False], FolderTree(tmp_path))  # type: ignore[list-item]


def test_a_callable_needs_a_folder_and_a_path_check_does_not() -> None:
    assert needs_path(raising(ValueError()))
    assert not needs_path(require_file("a"))
    with pytest.raises(PreGuardrailViolation, match="own_check failed: it needs local files"):
        run_checks("pre", [raising(ValueError())], ListingTree([]))


def test_the_first_check_that_fails_is_the_one_that_is_told() -> None:
    with pytest.raises(PreGuardrailViolation, match="require_file\\('b'\\)"):
        run_checks("pre", [require_dir("raw"), require_file("b"), require_file("c")], TREE)


def test_a_check_of_another_part_is_asked_like_the_built_in_ones() -> None:
    class Never:
        def label(self) -> str:
            return "never()"

        def violation(self, tree: Tree) -> str | None:
            return "it never holds"

    with pytest.raises(PostGuardrailViolation, match=r"post check never\(\) failed: it never holds"):
        run_checks("post", [Never()], TREE)


def test_check_guardrails_is_there_under_its_name_of_061(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    check_guardrails(tmp_path, [require_file("a")], "pre")
    with pytest.raises(GuardrailViolation, match="post check"):
        check_guardrails(tmp_path, [require_file("b")], "post")


def test_every_check_says_what_it_found_up_to_the_one_that_fails(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).touch()

    def own(_workdir: Path, _params: object) -> None: ...

    checks = [
        require_file("a.csv"),
        require_glob("*.csv"),
        forbid_glob("*.tmp"),
        own,
        require_glob("*.csv", min_count=3),
        require_file("never looked for"),
    ]

    found: list[CheckRecord] = []
    with pytest.raises(PostGuardrailViolation):
        found.extend(evaluate_checks("post", checks, FolderTree(tmp_path)))

    *held, failed = [(one.found, one.passed) for one in found]
    assert held == [("1 file", True), ("2 paths", True), ("no paths", True), ("", True)]
    assert failed[0].startswith("it matched 2 paths (a.csv, b.csv), 3 or more are required")
    assert not failed[1]


def test_an_intended_error_of_an_authors_check_is_found_too(tmp_path: Path) -> None:
    def late(_workdir: Path, _params: object) -> None:
        raise TaskFailed("the supplier is late")

    found: list[CheckRecord] = []
    with pytest.raises(TaskFailed):
        found.extend(evaluate_checks("pre", [late], FolderTree(tmp_path)))

    assert [(one.phase, one.found, one.passed) for one in found] == [("pre", "the supplier is late", False)]


class Shouted(str):
    """An author's own kind of text, which only their module knows."""

    __slots__ = ()


class Odd:
    """An author's check whose answers are no plain text, and whose `finding` is something of their own."""

    def label(self) -> str:
        return Shouted("odd()")

    def violation(self, tree: Tree) -> str | None:
        return ["a.csv", "b.csv"]  # type: ignore[return-value]

    def finding(self, tree: Tree) -> int:
        return 3


def test_the_result_of_an_authors_check_is_kept_as_plain_text() -> None:
    found: list[CheckRecord] = []
    with pytest.raises(PostGuardrailViolation, match=r"odd\(\) failed: \['a.csv', 'b.csv'\]"):
        found.extend(evaluate_checks("post", [Odd()], TREE))

    assert [(type(one.label), type(one.found)) for one in found] == [(str, str)]
    assert found[0].label == "odd()"
