"""One job of a host: from handing an attempt to its executor until that has cleaned up, or is gone."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from perago.runtime.root.removal import remove_tree
from perago.runtime.worker.hosted.line import Line, LineLost
from perago.runtime.worker.messages import Answer, Broken, Cleaned, Ended, Ready, Run
from perago.runtime.worker.process_link import ExecutorProcess, describe_exit, exit_code_of, kill_group

_CHUNK = 65536
_LAST_WORDS_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class HostedExecutor:
    """The executor process of a host; `output` does not block, and `workdirs` is a folder of its own."""

    process: ExecutorProcess
    pipe: Connection
    output: int
    death: int
    workdirs: Path
    ready: bool = False
    done: int = 0

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return bool(wait([self.death], 0))

    def printed(self) -> bytes:
        """What it has printed, without waiting; empty where there is nothing."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return b""

    def end(self) -> str:
        """End it, if it lives, with all that it has started and left in its folder; returns how it ended."""
        kill_group(self.process.pid or 0)
        self.process.join()
        self.pipe.close()
        os.close(self.output)
        if self.death != self.process.sentinel:
            os.close(self.death)
        with contextlib.suppress(OSError):
            remove_tree(self.workdirs)
        return describe_exit(exit_code_of(self.process))


class Hosting:
    """Passes on what an executor says while it runs an attempt; without one, until it is ready."""

    def __init__(self, executor: HostedExecutor, line: Line, run: Run | None) -> None:
        self._executor = executor
        self._line = line
        self._run = run
        self._ended: Ended | None = None
        self._broken = ""
        self._over = False

    def until_over(self) -> str:
        """Returns how the executor has ended; empty where it has done its work, and lives."""
        if self._executor.ready:
            self._begin()
        while not self._over:
            try:
                if (how := self._look()) is not None:
                    return how
            except LineLost as error:
                # What is said from now on is only kept: the job itself brings it.
                self._line.close()
                if self._ended is None:
                    self._kill()
                    return f"its line to the worker cut: {error}"
        self._pass_output()
        return ""

    def is_last(self, most: int) -> bool:
        """Whether the executor should run nothing more."""
        return self._ended is not None and self._ended.is_last(self._executor.done, most)

    def _look(self) -> str | None:
        """Wait for the next thing to happen; returns how the executor ended, if that is it."""
        executor, line = self._executor, self._line.connection
        wait([executor.pipe, executor.output, executor.death, *([line.fileno()] if line is not None else [])])
        self._pass_output()
        if line is not None and line.poll() and self._line.is_to_die():
            return self._kill()
        if executor.dead:
            return self._died()
        if executor.pipe.poll() and not self._pass_answer():
            wait([executor.death], _LAST_WORDS_SECONDS)
            return self._kill()
        return None

    def _kill(self) -> str:
        """End the executor; what it had said by then counts, since it tells how far it got."""
        kill_group(self._executor.process.pid or 0)
        wait([self._executor.death])
        return self._died()

    def _died(self) -> str:
        # What it said last may have come together with its death.
        while self._executor.pipe.poll() and self._pass_answer():
            pass
        self._pass_output()
        how = self._executor.end()
        return f"a start that failed: {self._broken}" if self._broken else how

    def _pass_answer(self) -> bool:
        """Pass on an answer; tells whether there may be more."""
        try:
            answer: Answer = self._executor.pipe.recv()
        except Exception:
            # It is gone, or something else has written into the pipe, and nothing after it can be told apart.
            return False
        match answer:
            case Ready():
                self._executor.ready = True
                self._begin()
                return True
            case Broken(reason):
                self._broken = reason
            case Ended():
                self._ended = answer
                self._executor.done += 1
            case Cleaned():
                self._over = True
        self._line.say(answer)
        return True

    def _pass_output(self) -> None:
        while data := self._executor.printed():
            self._line.print(data)

    def _begin(self) -> None:
        if self._run is None:
            self._over = True
            return
        # An executor that is gone says so by its death.
        with contextlib.suppress(OSError):
            self._executor.pipe.send(self._run)
