"""Wrappers around the ports: they see every call, and may refuse it, answer late or die in it."""

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
        "create_branch",
        "branches",
        "drop_branch",
        "upload",
        "delete",
        "copy",
        "differing",
        "uncommitted",
        "changed_paths",
        "commit",
        "fence_level",
        "merge",
        "relocate",
        "barrier",
        "gates",
        "why_soft",
        "create_tag",
        "tags",
        "drop_tag",
        "poll",
        "current",
        "complete",
        "extend_lease",
    }
)


class Wrapped:
    """A port whose calls go through `around(name, call, arguments)`, which makes them or does not."""

    def __init__(self, port: Any, around: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]) -> None:
        self._port = port
        self._around = around

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in PORT_CALLS:
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._around(name, lambda *given: found(*given, **keywords), arguments)

        return call


def recording(port: Any, calls: list[str]) -> Any:
    """A port that notes the name of every call."""

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls.append(name)
        return call(*arguments)

    return Wrapped(port, around)


def refusing(port: Any, *names: str, error: Exception | None = None) -> Any:
    """A port on which the named calls fail."""

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in names:
            raise error or AssertionError(f"{name} must not be called")
        return call(*arguments)

    return Wrapped(port, around)


def before(port: Any, name: str, action: Callable[[], None], *, nth: int = 1) -> Any:
    """A port that does something right before the nth call of a name reaches it."""
    seen = [0]

    def around(called: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if called == name:
            seen[0] += 1
            if seen[0] == nth:
                action()
        return call(*arguments)

    return Wrapped(port, around)


def after(port: Any, name: str, action: Callable[[], None]) -> Any:
    """A port that does something right after a call has happened; what it raises is the caller's answer."""

    def around(called: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        answer = call(*arguments)
        if called == name:
            action()
        return answer

    return Wrapped(port, around)
