"""Wrappers around the ports: they record calls, refuse them, or do something before or after one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PORT_CALLS = frozenset(
    {
        "commit_at",
        "head",
        "log",
        "list",
        "stat",
        "download",
        "read",
        "changes",
        "create_branch",
        "create_object",
        "branches",
        "drop_branch",
        "upload",
        "delete",
        "copy",
        "diff_paths",
        "has_uncommitted_changes",
        "uncommitted_paths",
        "commit",
        "fence_level",
        "merge",
        "relocate",
        "barrier",
        "gates",
        "fence_gap",
        "create_tag",
        "tags",
        "drop_tag",
        "poll",
        "workflow",
        "current",
        "complete",
        "extend_lease",
    }
)


class Wrapped:
    """A port whose calls go through `intercept(name, call, arguments)`, which may pass them on."""

    def __init__(
        self, port: Any, intercept: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]
    ) -> None:
        self._port = port
        self._intercept = intercept

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in PORT_CALLS:
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._intercept(name, lambda *given: found(*given, **keywords), arguments)

        return call


def recording(port: Any, calls: list[str]) -> Any:
    """Return a port that records the name of every call."""

    def intercept(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls.append(name)
        return call(*arguments)

    return Wrapped(port, intercept)


def refusing(port: Any, *names: str, error: Exception | None = None) -> Any:
    """Return a port on which the named calls fail."""

    def intercept(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in names:
            raise error or AssertionError(f"{name} must not be called")
        return call(*arguments)

    return Wrapped(port, intercept)


def before(port: Any, name: str, action: Callable[[], None], *, nth: int = 1) -> Any:
    """Return a port that runs `action` right before the nth call of that name."""
    seen = [0]

    def intercept(called: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if called == name:
            seen[0] += 1
            if seen[0] == nth:
                action()
        return call(*arguments)

    return Wrapped(port, intercept)


def after(port: Any, name: str, action: Callable[[], None]) -> Any:
    """Return a port that runs `action` right after a call; an exception from it becomes the call's answer."""

    def intercept(called: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        answer = call(*arguments)
        if called == name:
            action()
        return answer

    return Wrapped(port, intercept)
