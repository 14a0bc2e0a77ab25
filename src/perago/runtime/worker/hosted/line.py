"""A host's end of the line.  What must not be lost is kept, and said again where a line was cut and there is a new one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from perago.runtime.worker.hosted.calls import KEPT, Hello, Kill, Output, Unwanted, Welcome
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.messages import Answer

PATIENCE_SECONDS = 20.0
_PAUSE = 0.5

Call = Callable[[Hello], HostConnection]


class LineLost(Exception):
    """Nobody can be reached at the other end, or nobody there wants this job."""


class Line:
    """Calls the worker, and calls again when the line is cut."""

    def __init__(
        self,
        call: Call,
        hello: Hello,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._call = call
        self._hello = hello
        self._clock = clock
        self._sleep = sleep
        self._kept: list[Answer] = []
        self.connection: HostConnection | None = None

    @property
    def kept(self) -> tuple[Answer, ...]:
        """All that must not be lost."""
        return tuple(self._kept)

    def open(self) -> None:
        """Call until somebody answers, and say what was not heard before; `LineLost` where that does not help."""
        until = self._clock() + PATIENCE_SECONDS
        while True:
            self.close()
            try:
                self._connect()
                return
            except (OSError, EOFError) as error:
                self.close()
                if self._clock() >= until:
                    raise LineLost(str(error) or type(error).__name__) from error
            self._sleep(_PAUSE)

    def say(self, answer: Answer) -> None:
        """Tell the worker."""
        if isinstance(answer, KEPT):
            self._kept.append(answer)
        self._send(answer)

    def print(self, data: bytes) -> None:
        """Tell the worker what was printed."""
        self._send(Output(data))

    def is_to_die(self) -> bool:
        """Whether the worker, which has said something, wants the executor ended; a line that was cut is there again."""
        if self.connection is None:
            return False
        try:
            return isinstance(self.connection.recv(), Kill)
        except (OSError, EOFError):
            self.open()
            return False

    def close(self) -> None:
        """Hang up."""
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
            self.connection = None

    def _connect(self) -> None:
        self.connection = self._call(self._hello)
        answer = self.connection.recv()
        if isinstance(answer, Unwanted):
            raise LineLost("its worker does not wait for it any more")
        assert isinstance(answer, Welcome)  # noqa: S101 - there is nothing else
        self.connection.wait_for_ever()
        for said in self._kept[answer.heard :]:
            self.connection.send(said)

    def _send(self, message: Answer | Output) -> None:
        if self.connection is None:
            return
        try:
            self.connection.send(message)
        except OSError:
            self.open()
