"""Checks on a workspace, run before the body (`pre`) or after it (`post`).

A check is a value with a `label()` and a `violation(tree)`, or any callable `(workdir, params) -> None` that raises if
the check does not hold.  In a Spark task, a callable whose first parameter is annotated as `SparkWorkspace` gets the
workspace in place of the folder.  A check that measures something also has `finding(tree)`, which is called instead of
`violation(tree)`.  If a `pre` check fails, `PreGuardrailViolation` is raised (terminal); if a `post` check fails,
`PostGuardrailViolation`.  A check with `level="warn"` is recorded and logged, and fails nothing.  A `TaskFailed` raised
by a check passes through unchanged.  `evaluate_checks` yields the result of every check, so that users also see the
figures of the checks that passed.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any, Literal, Protocol, runtime_checkable

from perago.declare.diagnostics import Diagnostic, calling_place, report
from perago.declare.file_tree import FolderTree as FolderTree
from perago.declare.file_tree import ListingTree as ListingTree
from perago.declare.file_tree import Tree, literal_folder, may_match_in
from perago.declare.user_code import ctrl_c_is_live, describe_with_place
from perago.errors import (
    GuardrailViolation,
    PostGuardrailViolation,
    PreGuardrailViolation,
    TaskFailed,
)
from perago.protocol.attempt_record import CheckRecord
from perago.protocol.paths import (
    either,
    first_broken,
    has_backslash,
    has_dot_part,
    has_drive,
    has_empty_part,
    has_loose_double_star,
    has_nul,
    is_absolute,
    is_empty,
    leads_out,
)
from perago.protocol.suggestions import did_you_mean
from perago.protocol.view import View

log = logging.getLogger("perago.checks")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: its figures if it passed, or the violation if it failed."""

    text: str = ""
    passed: bool = True

    @property
    def violation(self) -> str | None:
        """The violation, or None if the check passed."""
        return None if self.passed else self.text


def failed_result(text: str) -> CheckResult:
    """Return the result of a failed check."""
    return CheckResult(text, passed=False)


@runtime_checkable
class MeasuringCheck(Protocol):
    """A check that reports figures whether it passes or fails."""

    def finding(self, tree: Tree) -> CheckResult:
        """Evaluate the check on the tree, and return the result."""


def format_count(things: Sized | int, one: str, many: str = "") -> str:
    """Return a number with its noun: "1 path", "3 paths", "no paths"."""
    number = things if isinstance(things, int) else len(things)
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


Phase = Literal["pre", "post"]
Level = Literal["fail", "warn"]
"""What a violation does: fail the attempt, or only be recorded and logged."""
LEVELS: tuple[Level, ...] = ("fail", "warn")
CheckKind = Literal["require_file", "require_dir", "require_glob", "forbid_glob"]

_NEARBY = 5
_NO_PATTERN = (
    (is_empty, "must not be empty"),
    (either(is_absolute, has_drive), "must be relative to the workspace's prefix, not absolute"),
    (either(has_backslash, has_nul), "must use '/' between its parts and hold no NUL"),
    (leads_out, "must not lead out of the workspace: '..' is not allowed"),
    (either(has_empty_part, has_dot_part), "must not hold empty parts or '.'"),
    (has_loose_double_star, "must have '**' as a part of its own"),
)


@runtime_checkable
class TreeCheck(Protocol):
    """A check that is evaluated on a file tree, and does not need a folder on disk."""

    def label(self) -> str:
        """Return the check as written in the declaration."""

    def violation(self, tree: Tree) -> str | None:
        """Return the violation, including what was found instead, or None if the check passes."""


@runtime_checkable
class PlacedCheck(Protocol):
    """A check whose paths are known from its declaration, so that they can be compared with the view in advance."""

    def looks_outside(self, view: View) -> bool:
        """Return whether the check's paths are certain to be outside the view."""


@runtime_checkable
class TemplatedCheck(Protocol):
    """A check whose paths may contain names of params in braces, which are filled for each attempt."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths and patterns of the check."""

    def is_outside(self, path: str, view: View) -> bool:
        """Return whether one of the check's paths is certain to be outside the view."""

    def filled(self, fill: Callable[[str], str]) -> Check:
        """Return the check with its paths filled by `fill`."""


@runtime_checkable
class WorkspaceTree(Protocol):
    """A file tree of a Spark task, which can call checks that take the workspace."""

    def call_with_workspace(self, check: Callable[[Any, Any], None], params: object) -> object:
        """Call the check with the workspace, which it can only read, and return its answer."""


Check = TreeCheck | Callable[[Path, Any], None]


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A rule about what exists at a path or matches a pattern."""

    kind: CheckKind
    pattern: str
    min_count: int | None = None
    max_count: int | None = None
    level: Level = "fail"

    def label(self) -> str:
        """Return the check as written in the declaration."""
        bounds = {"min_count": self.min_count, "max_count": self.max_count}
        shown = "".join(f", {name}={count}" for name, count in bounds.items() if count is not None)
        shown += level_label(self.level)
        return f"{self.kind}({self.pattern!r}{shown})"

    def violation(self, tree: Tree) -> str | None:
        """Return the violation, including what was found instead, or None if the check passes."""
        return self.finding(tree).violation

    def finding(self, tree: Tree) -> CheckResult:
        """Return the number of matching paths or, if the check fails, the violation and what was found instead."""
        match self.kind:
            case "require_file":
                return (
                    CheckResult("1 file")
                    if tree.is_file(self.pattern)
                    else self._missing_result("file", tree)
                )
            case "require_dir":
                return (
                    CheckResult("1 folder")
                    if tree.is_dir(self.pattern)
                    else self._missing_result("folder", tree)
                )
            case "require_glob" | "forbid_glob":
                return self._count(tree)

    @property
    def paths(self) -> tuple[str, ...]:
        """The pattern, as a tuple."""
        return (self.pattern,)

    def looks_outside(self, view: View) -> bool:
        """Return True if no path in the view can match the pattern."""
        return self.is_outside(self.pattern, view)

    def is_outside(self, path: str, view: View) -> bool:
        """Return True if no path in the view can match this pattern."""
        return not any(
            root == view.prefix or may_match_in(path, root.removeprefix(view.prefix)) for root in view.roots
        )

    def filled(self, fill: Callable[[str], str]) -> PathCheck:
        """Return the check with its pattern filled by `fill`."""
        return replace(self, pattern=fill(self.pattern))

    def _missing_result(self, wanted: str, tree: Tree) -> CheckResult:
        other = "folder" if wanted == "file" else "file"
        there = tree.is_dir(self.pattern) if wanted == "file" else tree.is_file(self.pattern)
        if there:
            return failed_result(f"it is a {other}, not a {wanted}")
        return failed_result(f"there is no such {wanted}; {_describe_nearby(tree, self.pattern)}")

    def _count(self, tree: Tree) -> CheckResult:
        most = self.max_count if self.kind == "require_glob" else self.max_count or 0
        matches = sorted(tree.glob(self.pattern))
        if len(matches) < (self.min_count or 0):
            found = f"it matched {_list_matches(matches)}, {self.min_count} or more are required"
            return failed_result(f"{found}; {_describe_nearby(tree, self.pattern)}")
        if most is not None and len(matches) > most:
            allowed = "none is allowed" if most == 0 else f"at most {most} are allowed"
            return failed_result(f"it matched {_list_matches(matches)}, {allowed}")
        return CheckResult(format_count(matches, "path"))


def require_file(path: str | os.PathLike[str], *, level: Level = "fail") -> PathCheck:
    """Require a file at this path.  With `level="warn"`, a violation is recorded and logged, and fails nothing."""
    return _path_check("require_file", path, level)


def require_dir(path: str | os.PathLike[str], *, level: Level = "fail") -> PathCheck:
    """Require a folder at this path.  With `level="warn"`, a violation is recorded and logged, and fails nothing."""
    return _path_check("require_dir", path, level)


def require_glob(
    pattern: str | os.PathLike[str],
    *,
    min_count: int = 1,
    max_count: int | None = None,
    level: Level = "fail",
) -> PathCheck:
    """Require that at least `min_count` and at most `max_count` paths match.

    With `level="warn"`, a violation is recorded and logged, and fails nothing.
    """
    return _path_check("require_glob", pattern, level, min_count=min_count, max_count=max_count)


def forbid_glob(pattern: str | os.PathLike[str], *, max_count: int = 0, level: Level = "fail") -> PathCheck:
    """Forbid matching paths, or allow at most `max_count` of them.

    With `level="warn"`, a violation is recorded and logged, and fails nothing.
    """
    return _path_check("forbid_glob", pattern, level, max_count=max_count)


def run_checks(phase: Phase, checks: Sequence[Check], tree: Tree, params: object = None) -> None:
    """Run the checks in order.  Raises the phase's violation, or `TaskFailed`, for the first check that fails."""
    for _ in evaluate_checks(phase, checks, tree, params):
        pass


def evaluate_checks(
    phase: Phase, checks: Sequence[Check], tree: Tree, params: object = None
) -> Iterator[CheckRecord]:
    """Yield the result of each check.  Raises the phase's violation, or `TaskFailed`, after the first failed check."""
    violation = PreGuardrailViolation if phase == "pre" else PostGuardrailViolation
    live = ctrl_c_is_live()
    for check in checks:
        name = _plain_text(label(check))
        failed: BaseException | None = None
        try:
            found = _evaluate_check(check, tree, params)
        except BaseException as error:
            if live and isinstance(error, KeyboardInterrupt):
                raise
            failed, found = error, failed_result(describe_with_place(error))
        found = CheckResult(_plain_text(found.text), found.passed)
        warns = getattr(check, "level", "fail") == "warn"
        yield CheckRecord(phase, name, found.text, passed=found.passed, level="warn" if warns else "")
        if isinstance(failed, TaskFailed):
            raise failed
        if not found.passed and warns and (failed is None or isinstance(failed, GuardrailViolation)):
            log.warning("%s check %s did not pass: %s", phase, name, found.text)
        elif not found.passed:
            raise violation(f"{phase} check {name} failed: {found.text}") from failed


def check_guardrails(root: Path, guardrails: Sequence[Check], phase: str) -> None:
    """Run checks on a folder, without params.  The name and argument order are those of perago 0.6.1."""
    run_checks("pre" if phase == "pre" else "post", guardrails, FolderTree(root))


def is_user_code(check: Check) -> bool:
    """Return whether the check is a callable of the author's."""
    return not isinstance(check, TreeCheck)


def takes_workspace(check: object) -> bool:
    """Return whether the check is a callable whose first parameter is annotated as a `SparkWorkspace`."""
    if isinstance(check, TreeCheck) or not callable(check):
        return False
    annotation: object = ""
    for evaluate in (True, False):  # an annotation of the other parameter may not be resolvable
        try:
            [first, *_] = inspect.signature(check, eval_str=evaluate).parameters.values()
        except (NameError, ValueError, TypeError, SyntaxError, AttributeError):
            continue
        annotation = first.annotation
        break
    if isinstance(annotation, str):
        return annotation.strip("'\"").rpartition(".")[2] == "SparkWorkspace"
    return getattr(annotation, "__perago_workspace__", None) == "spark"


def needs_path(check: Check) -> bool:
    """Return whether the check needs a folder on disk rather than just a listing."""
    return is_user_code(check) and not takes_workspace(check)


def level_label(level: Level) -> str:
    """Return the level as written in a declaration, or "" for the default."""
    return "" if level == "fail" else f", level={level!r}"


def level_diagnostics(kind: str, level: object) -> list[Diagnostic]:
    """Return a diagnostic if the level of a check is not one of `LEVELS`."""
    if level in LEVELS:
        return []
    hint = did_you_mean(str(level), LEVELS, otherwise="")
    return [Diagnostic(f"{kind} level", f"must be 'fail' or 'warn'{hint}", level)]


def label(check: Check) -> str:
    """Return a human-readable name for the check."""
    if isinstance(check, TreeCheck):
        return check.label()
    return str(getattr(check, "__qualname__", None) or type(check).__qualname__)


def looks_outside(check: object, view: View) -> bool:
    """Return whether a check is certain to read outside the view.

    False for a plain function, because it is not known what the function reads.
    """
    return isinstance(check, PlacedCheck) and check.looks_outside(view)


def not_a_check(value: object) -> str | None:
    """Return why `value` cannot be a check, or None if it can."""
    if isinstance(value, TreeCheck) and not isinstance(value, type):
        return None
    if not callable(value) or isinstance(value, type):
        return "is not a check: use require_file, require_dir, require_glob, forbid_glob or a function"
    if inspect.iscoroutinefunction(value):
        return "must not be async"
    try:
        inspect.signature(value).bind(object(), object())
    except TypeError:
        return "must be callable as check(workdir, params)"
    except ValueError:
        return None  # a built-in without an introspectable signature
    return None


def _evaluate_check(check: Check, tree: Tree, params: object) -> CheckResult:
    if isinstance(check, TreeCheck) and isinstance(check, MeasuringCheck):
        found = check.finding(tree)
        if isinstance(found, CheckResult):  # an author's check may use that name for something else
            return found
    no = check.violation(tree) if isinstance(check, TreeCheck) else _call_check(check, tree, params)
    return CheckResult() if no is None else failed_result(no)


def _plain_text(text: object) -> str:
    """Return an author's text as a plain `str`.  It leaves the process, so it must not be a user-defined subclass."""
    try:
        return "".join([str(text)])
    except Exception:
        return f"a {type(text).__name__} (its text cannot be shown)"


def _call_check(check: Callable[[Any, Any], None], tree: Tree, params: object) -> str | None:
    answer: object
    if takes_workspace(check):
        if not isinstance(tree, WorkspaceTree):
            raise GuardrailViolation("it takes a SparkWorkspace, which only a Spark task has")
        answer = tree.call_with_workspace(check, params)
    elif tree.path is None:
        raise GuardrailViolation("it needs local files, but direct placement has none")
    else:
        answer = check(tree.path, params)  # type: ignore[func-returns-value]
    return "it returned False; a check says no by raising" if answer is False else None


def _path_check(
    kind: CheckKind, path: str | os.PathLike[str], level: Level, **bounds: int | None
) -> PathCheck:
    pattern, broken = _read_pattern(path)
    diagnostics = [Diagnostic(f"{kind} pattern", broken, path)] if broken else []
    diagnostics += _bound_diagnostics(kind, bounds) + level_diagnostics(kind, level)
    if diagnostics:
        report(diagnostics, calling_place())
        return PathCheck("forbid_glob", "*", max_count=0)
    return PathCheck(kind, pattern, level=level, **bounds)


def _bound_diagnostics(kind: CheckKind, bounds: dict[str, int | None]) -> list[Diagnostic]:
    for name, value in bounds.items():
        optional = (kind, name) == ("require_glob", "max_count")
        if value is None and optional:
            continue
        if type(value) is not int or value < 0:
            return [Diagnostic(f"{kind} {name}", "must be a whole number, 0 or more", value)]
    least, most = bounds.get("min_count"), bounds.get("max_count")
    if least is not None and most is not None and least > most:
        return [Diagnostic(f"{kind} max_count", f"must not be below min_count ({least})", most)]
    return []


def _read_pattern(path: object) -> tuple[str, str | None]:
    if not isinstance(path, str | os.PathLike):
        return "", "must be text or a path"
    text = path.as_posix() if isinstance(path, PureWindowsPath) else str(os.fspath(path))
    return text, first_broken(text, _NO_PATTERN)


def _describe_nearby(tree: Tree, pattern: str) -> str:
    folder = literal_folder(pattern)
    while folder and not tree.is_dir(folder):
        folder = folder.rpartition("/")[0]
    where = f"{folder}/" if folder else "the workspace"
    names = tree.names(_NEARBY + 1, folder)
    if not names:
        return f"{where} is empty"
    more = ", …" if len(names) > _NEARBY else ""
    return f"{where} holds {', '.join(names[:_NEARBY])}{more}"


def _list_matches(matches: Sequence[str]) -> str:
    if not matches:
        return "nothing"
    more = ", …" if len(matches) > _NEARBY else ""
    return f"{format_count(matches, 'path')} ({', '.join(islice(matches, _NEARBY))}{more})"
