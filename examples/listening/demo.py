"""`make demo`: runs the pipeline, with an accident in the middle, and shows the results.

By default it runs on the embedded servers in the folder `demo` below PERAGO_ROOT (`.perago`), which it empties; with
REAL=1 on the lakeFS and Conductor that the environment names.  ROWS sets the number of plays.  Every command is shown, so
that you can run it again by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
PERAGO = [sys.executable, "-m", "perago"]
SIDE_BY_SIDE = ("sessions", "daily")
PORT = 8642
"""The port on which `perago ui` serves its page, unless it is taken."""


@dataclass(frozen=True, slots=True)
class Demo:
    """One run of the demo."""

    root: Path
    repository: str
    rows: int
    real: bool

    def run(self) -> int:
        """Run the pipeline, then show who published what, what was replaced, and where the chart is."""
        began = time.monotonic()
        accident = self.root / "accident"
        accident.touch()
        payload: dict[str, Any] = {"rows": self.rows, "accident_file": str(accident)}
        seed = (HERE / "seed").relative_to(PROJECT)
        done = self._perago(
            *("run", str((HERE / "workflow.json").relative_to(PROJECT))),
            *("--tasks", str((HERE / "tasks.py").relative_to(PROJECT))),
            *("--import", f"{self.repository}={seed}", "--workspace", self.repository),
            *("--input", json.dumps(payload), "--json"),
            *(("--yes",) if self.real else ()),
        )
        ended = json.loads(done) if done else {"status": "not started", "tasks": []}
        for attempt in ended["tasks"]:
            tries = f", retry {attempt['retry_count']}" if attempt["retry_count"] else ""
            why = f": {attempt['reason']}" if attempt["reason"] and attempt["status"] != "COMPLETED" else ""
            say(f"  {attempt['reference']:<10} {attempt['status']}{tries}{why}")
        if ended["status"] != "COMPLETED":
            say(f"the workflow is {ended['status']}: {ended.get('reason')}")
            return 1
        commits = self._show_history()
        beside = self._show_beside(ended, commits)
        replaced = self._show_replaced(ended)
        self._save_report()
        say(f"\nIt took {time.monotonic() - began:.0f} s for {self.rows} plays.")
        self._offer_page()
        return 0 if replaced and beside else 1

    def _offer_page(self) -> None:
        """Serve the page until Ctrl-C if a user is at the terminal. Otherwise, show the command that serves it."""
        title("A page to look at it")
        somebody = sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
        if somebody:
            with contextlib.suppress(KeyboardInterrupt):
                subprocess.run(self._command("ui"), cwd=PROJECT, check=False)
            return
        say(f"  http://127.0.0.1:{PORT}/ once you have started it:")
        root = self.root.relative_to(PROJECT) if self.root.is_relative_to(PROJECT) else self.root
        say(
            "  "
            + shlex.join([".venv/bin/perago", "ui", *(["--remote"] if self.real else ["--root", str(root)])])
        )

    def _show_history(self) -> list[dict[str, Any]]:
        """Show the branch that people read, which has the whole run as one commit, and the run's own commits."""
        title("What readers of main see: the whole run, as one commit (newest first)")
        [published, *_] = self._show_commits(self.repository)
        title("What the run's steps have published for each other until then")
        run = published["metadata"]["perago.run_commit"]
        return self._show_commits(f"{self.repository}@{run[:12]}")

    def _show_commits(self, where: str) -> list[dict[str, Any]]:
        commits: list[dict[str, Any]] = json.loads(self._perago("history", where, "--json"))
        for commit in commits:
            said = commit["metadata"]
            who = said.get("perago.logical_task_key", "").rpartition("/")[2] or "not a task"
            if (retry := said.get("perago.retry_count", "0")) != "0":
                who += f", retry {retry}"
            say(f"  {commit['id'][:12]}  {who:<18}  {commit['message']}")
        return commits

    def _show_beside(self, ended: dict[str, Any], commits: list[dict[str, Any]]) -> bool:
        """Show the two steps of the fork: both worked from one commit, and one published on top of the other."""
        title("What was published side by side")
        made = {commit["id"]: commit for commit in commits}
        refs = {
            one["reference"]: one["output"]["workspace"]["ref"]
            for one in ended["tasks"]
            if one["reference"] in ("clean", *SIDE_BY_SIDE) and one["status"] == "COMPLETED"
        }
        order = [commit["id"] for commit in commits]
        later, earlier = sorted(SIDE_BY_SIDE, key=lambda step: order.index(refs[step]))
        say(f"  {earlier} and {later} both worked from {refs['clean'][:12]}, which clean published.")
        say(
            f"  {earlier} was first, with {refs[earlier][:12]}. It changed nothing that {later} reads or writes,"
        )
        say(f"  so {refs[later][:12]} of {later} went on top of it, and the audit worked from both.")
        return bool(made[refs[later]]["parents"] == [refs[earlier]])

    def _show_replaced(self, ended: dict[str, Any]) -> bool:
        """Show the publication that the accident left behind: replaced on the branch, preserved under a tag."""
        title("What was replaced")
        kept = next(iter(self._tags()), None)
        if kept is None:
            say("  nothing: the accident did not happen")
            return False
        deaths = [
            one for one in ended["tasks"] if one["reference"] == "clean" and one["status"] != "COMPLETED"
        ]
        say(
            f"  clean published {kept[:12]}, was killed before Conductor heard of it ({deaths[0]['reason']}),"
        )
        say("  and its retry put its own result in the place of that one. The old one can still be opened:")
        listing = self._perago("ls", self.repository, kept, "listening/published")
        for line in listing.splitlines():
            say(f"  {line}")
        return True

    def _save_report(self) -> None:
        title("The report")
        for name in ("chart.png", "index.html"):
            data = subprocess.run(
                self._command("cat", self.repository, "main", f"listening/published/report/{name}"),
                cwd=PROJECT,
                check=True,
                capture_output=True,
            ).stdout
            target = self.root / "report" / name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            say(f"  {target.relative_to(PROJECT) if target.is_relative_to(PROJECT) else target}")

    def _tags(self) -> list[str]:
        from perago.backend import open_lakefs, open_local_lake
        from perago.settings import load_settings

        settings = load_settings(os.environ, root=self.root)
        lake = open_lakefs(settings) if self.real else open_local_lake(settings)
        try:
            return [tag.commit for tag in lake.tags(self.repository, "perago-replaced-")]
        finally:
            lake.close()

    def _perago(self, *words: str) -> str:
        command = self._command(*words)
        say("\n$ perago " + shlex.join(command[len(PERAGO) :]))
        return subprocess.run(command, cwd=PROJECT, check=False, stdout=subprocess.PIPE, text=True).stdout

    def _command(self, *words: str) -> list[str]:
        return [*PERAGO, *words, *(["--remote"] if self.real else ["--root", str(self.root)])]


def title(text: str) -> None:
    """Print a heading."""
    say(f"\n{text}")


def say(text: str) -> None:
    """Print a line without buffering, because the commands in between print directly."""
    print(text, flush=True)


def main() -> int:
    """Set up what the demo needs, and run it."""
    real = os.environ.get("REAL", "") not in ("", "0")
    # A folder of its own: whoever has set PERAGO_ROOT keeps other work there.
    above = Path(os.environ.get("PERAGO_ROOT") or PROJECT / ".perago").absolute()
    root = above / ("demo-real" if real else "demo")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    os.environ["PERAGO_ROOT"] = str(root)
    # A lakeFS repository remains after the run, so each run has its own.
    repository = f"listening-{secrets.token_hex(3)}" if real else "listening"
    return Demo(root, repository, int(os.environ.get("ROWS") or 200_000), real).run()


if __name__ == "__main__":
    sys.exit(main())
