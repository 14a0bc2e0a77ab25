"""Server processes: started detached, found again by a pid file, and stopped reliably.

The rule: a pid is ours only if its command line names our state folder.  A pid file is ignored if it outlived its
process, or if its pid now belongs to another process.
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

# The inner shell writes its own pid and becomes the server, so no server is ever without a pid file.  The outer shell
# exits at once, so that the server is not the caller's child and never becomes its zombie.
BECOME = 'echo $$ > "$0.part" && mv "$0.part" "$0" && exec "$@"'
LEAVE = '"$@" &'


_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Process:
    """One server's process, whether it is running or not. `asked_by` is the signal that makes it stop at once."""

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
        """Return the pid of the running process, or None."""
        try:
            pid = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.folder) in _command_line(pid) else None

    def start(self, command: list[str], secrets: Mapping[str, str] | None = None) -> None:
        """Start the process in a new session. It outlives us and keeps none of our files open.

        `secrets` are passed in its environment, because anyone can read a command line.
        """
        home = self.folder / self.name
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        # Keep the environment small: a LAKEFS_* or SPRING_* variable from the developer's shell would change the server.
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
        """Stop the process, even if it is paused or does not respond. Returns when it is gone."""
        pid = self.pid()
        if pid is not None:
            _signal_group(pid, self.asked_by)
            _signal_group(pid, signal.SIGCONT)
            if not self._gone_within(grace_seconds):
                _signal_group(pid, signal.SIGKILL)
                self._gone_within(grace_seconds)
        self.pid_file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the data of a stopped process."""
        shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of its log."""
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
    # The server's session has a single process group, so its children are signalled too.
    try:
        os.killpg(os.getpgid(pid), number)
    except ProcessLookupError:
        return


def _command_line(pid: int) -> str:
    """Return the command line of a running process. It is empty if the process is gone or is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            # A process has no command line for a moment during exec.
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
    """Return whether a process is a zombie. Its state follows its name, which may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
