"""Server processes: started detached, found again by a pid file, stopped for certain.

The rule: a pid is ours only while its command line names our state folder.  A pid file that outlived its process,
or whose pid now belongs to somebody else, is never acted upon.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The inner shell writes its own pid and becomes the server, so no server is ever without a pid file.  The outer one
# leaves at once: the server is nobody's child, and a caller that lives on has no zombie of it.
BECOME = 'echo $$ > "$0.part" && mv "$0.part" "$0" && exec "$@"'
LEAVE = '"$@" &'


_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Process:
    """One server's process, whether it runs or not; `asked_by` is the signal that it takes for "end now"."""

    name: str
    folder: Path
    asked_by: signal.Signals = signal.SIGTERM

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def pid(self) -> int | None:
        """The pid of the living process, or nothing."""
        try:
            pid = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.folder) in _command_line(pid) else None

    def start(self, command: list[str], secrets: Mapping[str, str] | None = None) -> None:
        """Start it in a session of its own; it outlives us and holds nothing of ours open.

        `secrets` go into its environment: anybody can read a command line.
        """
        home = self.folder / self.name
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        # A small environment: a LAKEFS_* or SPRING_* of the developer's shell would change the server.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LC_ALL": "C.UTF-8"}
        with self.log.open("ab") as log:
            subprocess.run(
                ["/bin/sh", "-c", LEAVE, "leave", "/bin/sh", "-c", BECOME, str(self.pid_file), *command],
                cwd=home,
                env={**environment, "TMPDIR": str(home / "tmp"), **(secrets or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                check=True,
            )

    def stop(self, *, grace_seconds: float = 10) -> None:
        """End it, also when it is paused or does not listen; returns when it is gone."""
        pid = self.pid()
        if pid is not None:
            _signal_group(pid, self.asked_by)
            _signal_group(pid, signal.SIGCONT)
            if not self._gone_within(grace_seconds):
                _signal_group(pid, signal.SIGKILL)
                self._gone_within(grace_seconds)
        self.pid_file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove what it keeps; for a process that is stopped."""
        shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The server's session has one group, so its children go with it.
    try:
        os.killpg(os.getpgid(pid), number)
    except ProcessLookupError:
        return


def _command_line(pid: int) -> str:
    """The command line of a living process; empty for one that is gone or only waits to be reaped."""
    if Path("/proc/self/cmdline").exists():
        try:
            # In the instant in which a process becomes another program it has no command line.
            for _ in range(_LOOKS):
                found = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if found or _is_dead(pid):
                    return found
                time.sleep(0.005)
        except (FileNotFoundError, ProcessLookupError):
            pass
        return ""
    done = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout


def _is_dead(pid: int) -> bool:
    """Whether it only waits to be reaped; the state stands behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
