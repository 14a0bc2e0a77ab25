"""Records the steps of an attempt, and the calls to servers in each of them, for the trace.

An executor only takes times.  Its supervisor makes spans of them (`traces`), so no executor imports OpenTelemetry, and
what a killed executor had told is not lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

MOST_CALLS = 200
"""Maximum number of calls that are told of one step.  The others are counted."""

Port = TypeVar("Port")


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call to a server.  Times are in nanoseconds since 1970; `error` is the name of the exception's class."""

    name: str
    began: int
    ended: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step of an attempt that has ended, with the calls that ended in it."""

    step: str
    began: int
    ended: int
    calls: tuple[CallTimes, ...] = ()
    left_out: int = 0
    """Number of calls beyond `MOST_CALLS`."""


class CallRecorder:
    """Records the steps and calls of one attempt, and tells each step when it has ended.

    A call that goes on beside the steps belongs to the step in which it ends.
    """

    def __init__(self, tell: Callable[[StepTimes], None]) -> None:
        self._tell = tell
        self._step = ""
        self._began = 0
        self._calls: list[CallTimes] = []
        self._left_out = 0
        self._closed = False

    def begin(self, step: str) -> None:
        """End the current step, if any, and begin the next one."""
        if not self._closed:
            now = time.time_ns()
            self._end_step(now)
            self._step, self._began = step, now

    def close(self) -> None:
        """End the last step.  What follows is not part of the attempt's trace."""
        if not self._closed:
            self._end_step(time.time_ns())
            self._closed = True

    def watch(self, port: Port, name: str) -> Port:
        """Return the port with all its calls recorded.  Its calls return and raise what they did."""
        return cast(Port, _WatchedPort(port, name, self._add))

    def _add(self, call: CallTimes) -> None:
        if len(self._calls) < MOST_CALLS:
            self._calls.append(call)
        else:
            self._left_out += 1

    def _end_step(self, now: int) -> None:
        calls, self._calls = self._calls, []
        left_out, self._left_out = self._left_out, 0
        if self._step:
            self._tell(StepTimes(self._step, self._began, now, tuple(calls), left_out))


class _WatchedPort:
    """Passes everything on to a port, and takes the time of its public methods."""

    def __init__(self, port: object, name: str, add: Callable[[CallTimes], None]) -> None:
        self._watched = port
        self._watched_name = name
        self._watched_add = add

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        if name.startswith("_") or not callable(found):
            return found
        add, label = self._watched_add, f"{self._watched_name}.{name}"

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.time_ns()
            try:
                result = found(*args, **kwargs)
            except BaseException as error:
                add(CallTimes(label, began, time.time_ns(), type(error).__name__))
                raise
            if isinstance(result, Iterator):
                return _watched_items(result, label, add)
            add(CallTimes(label, began, time.time_ns()))
            return result

        return timed


def _watched_items(items: Iterator[Any], label: str, add: Callable[[CallTimes], None]) -> Iterator[Any]:
    """Yield the items of a call that asks the server while they are read."""
    began, error = time.time_ns(), ""
    try:
        yield from items
    except GeneratorExit:
        raise
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        add(CallTimes(label, began, time.time_ns(), error))
