"""Random histories of a task that works on changes only: every file is in exactly one publication of the task.

Files come, change and go; workers die before or after any call, or after publishing; outputs are reverted and edited by
hand; branches are forked; retries replace, supersede or reuse what was left behind.  Every content is unique, so the
output of the task shows at any moment which files it has skipped, and which it has taken twice.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago import changes
from perago.orchestrator.base import Assignment
from perago.protocol.ledger import Recompute
from perago.protocol.metadata import LEDGER_KEY
from tests.support.faults.gates import Died
from tests.support.faults.ports import Wrapped
from tests.support.worlds.world import Made, Params, World, make_task

HISTORIES = 100
STEPS = 14
LOG = "out/log.txt"
POLICIES: list[dict[str, Any]] = [
    {"on_abandoned": "replace"},
    {"on_abandoned": "supersede"},
    {"on_abandoned": "reuse"},
    {"on_abandoned": "supersede", "on_advanced": "rebase"},
]


def collect(workspace: Path, params: Params) -> Made:
    """Append the content of every new or changed file to a log, for one of two sources that share the log.

    If all files count as new, the source's lines are made anew.
    """
    found = changes(workspace, "raw")
    lines = [f"{params.text}: {(workspace / path).read_text()}" for path in found.present]
    log = workspace / LOG
    log.parent.mkdir(exist_ok=True)
    kept = log.read_text().splitlines() if log.exists() else []
    if found.since is None:
        # What neither source has written goes. A publication needs a change, even if there are no files.
        others = {"x", "y"} - {params.text}
        kept = [line for line in kept if line.partition(": ")[0] in others]
        lines.append(f"{params.text}: made anew, number {next(_fulls)}")
    log.write_text("".join(f"{line}\n" for line in (*kept, *lines)))
    return Made(said=str(len(lines)))


_fulls = itertools.count()


class Dying:
    """Makes a worker die at one call to a port: that call and all later ones fail, so nothing is cleaned up."""

    def __init__(self, at: int, *, after: bool) -> None:
        self._left, self._after, self._dead = at, after, False

    def around(self, port: Any) -> Any:
        return Wrapped(port, self._call)

    def _call(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._dead:
            raise Died
        self._left -= 1
        if self._left:
            return call(*arguments)
        self._dead = True
        if self._after:
            call(*arguments)
        raise Died


class History:
    """One random history on one branch at a time."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.task = make_task(
            collect,
            name=f"collect-{seed}",
            retries=30,
            prefix="/",
            reads=("raw",),
            writes=("out",),
            skip_unchanged=self.random.random() < 0.5,
            ledger_key=("text",),
            **self.random.choice(POLICIES),
        )
        self.sources = self.random.choice([["x"], ["x", "y"]])
        """The values of the param that the key of the ledger contains. All of them share the output."""
        self.contents = itertools.count()
        self.branch, self.edited = "main", False
        self.published: list[str] = []
        """The refs of completed attempts on this branch, and so states of the output that the task itself has made."""

    # --- what may happen ---------------------------------------------------------------------------------------

    def play(self) -> None:
        self.add()
        for _ in range(STEPS):
            what = self.random.choice(
                [
                    *(self.add, self.add, self.change, self.remove, self.run, self.run),
                    *(self.crash, self.abandon, self.revert, self.edit, self.fork),
                ]
            )
            what()
        self.mend()
        self.run()

    def add(self) -> None:
        self.commit({f"raw/{next(self.contents)}": self.content()})

    def change(self) -> None:
        if files := self.raw():
            self.commit({self.random.choice(files): self.content()})

    def remove(self) -> None:
        if files := self.raw():
            self.commit({self.random.choice(files): None})

    def run(self) -> None:
        self.finish(*self.start())

    def crash(self) -> None:
        workflow, assignment = self.start()
        for _ in range(self.random.randint(1, 3)):
            dying = Dying(self.random.randint(1, 30), after=self.random.random() < 0.5)
            lake, orchestrator = dying.around(self.world.lake), dying.around(self.world.orchestrator)
            try:
                self.execute(assignment, lake=lake, orchestrator=orchestrator)
            except Died:
                assignment = self.next_attempt(workflow)
            else:
                assignment = self.next_attempt(workflow)
                break
            if assignment is None:
                break
        if self.edited:
            self.world.orchestrator.terminate_workflow(workflow, "the output was edited")
        else:
            self.finish(workflow, assignment)

    def abandon(self) -> None:
        workflow, assignment = self.start()

        def die(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
            if name == "complete":
                raise Died
            return call(*arguments)

        try:
            self.execute(assignment, orchestrator=Wrapped(self.world.orchestrator, die))
        except Died:
            if self.random.random() < 0.7:
                self.finish(workflow, self.next_attempt(workflow))
            else:
                self.world.orchestrator.terminate_workflow(workflow, "given up")
        else:
            self.expect_refusal(workflow)

    def revert(self) -> None:
        """Bring back the output of an earlier publication, as `perago restore` does for some paths."""
        if self.published:
            self.put_log(self.world.files(self.random.choice(self.published)).get(LOG))
            self.edited = False

    def edit(self) -> None:
        """Edit the output by hand, once all sources have published: for another one it would be its first run."""
        history = self.world.lake.log(self.world.repository, self.branch, 100)
        known = {commit.metadata[LEDGER_KEY] for commit in history if LEDGER_KEY in commit.metadata}
        if len(known) == len(self.sources):
            self.put_log(f"edited {self.content()}\n")
            self.edited = True

    def fork(self) -> None:
        name = f"fork-{next(self.contents)}-{self.task.name}"
        self.world.lake.create_branch(self.world.repository, name, self.branch, hidden=False)
        self.branch = name

    def mend(self) -> None:
        """Undo an edit by hand, if there is one; without a publication to go back to, everything is done again."""
        if self.edited and self.published and self.random.random() < 0.5:
            self.revert()
        elif self.edited:
            self.edited = False
            # Each source makes its own lines anew: what one has made says nothing about the others.
            for source in self.sources:
                self.finish(*self.start(source), recompute=Recompute(full=True))

    # --- what must hold ----------------------------------------------------------------------------------------

    def finish(self, workflow: str, assignment: Assignment | None, **changed: Any) -> None:
        """Run attempts until the workflow ends, and check what it leaves."""
        while assignment is not None:
            self.execute(assignment, **changed)
            if self.edited:
                self.expect_refusal(workflow)
                return
            assignment = self.next_attempt(workflow)
        state = self.world.workflow(workflow)
        assert state.status == "COMPLETED", state.reason
        self.check(state.output["ref"])

    def expect_refusal(self, workflow: str) -> None:
        reasons = [one.reason or "" for one in self.world.workflow(workflow).tasks]
        assert "is not known" in reasons[-1], f"an edited output was taken for the task's: {reasons}"
        self.world.orchestrator.terminate_workflow(workflow, "the output was edited")

    def next_attempt(self, workflow: str) -> Assignment | None:
        """Return the next attempt, once the current one's worker is dead; None if the workflow has ended."""
        self.world.orchestrator.time_out_in_progress("the worker is dead")
        return self.world.poll(self.task) if self.world.workflow(workflow).running else None

    def check(self, ref: str) -> None:
        files = self.world.files(ref)
        taken = files.get(LOG, "").splitlines()
        assert len(taken) == len(set(taken)), f"taken twice: {taken}"
        wanted = {f"{self.source}: {text}" for path, text in files.items() if path.startswith("raw/")}
        missed = wanted - set(taken)
        assert not missed, f"never taken: {missed} of {files}"
        self.published.append(ref)

    # --- helpers -----------------------------------------------------------------------------------------------

    def start(self, source: str = "") -> tuple[str, Assignment]:
        head = self.world.lake.head(self.world.repository, self.branch).id
        workspace = {"repository": self.world.repository, "branch": self.branch, "ref": head}
        self.source = source or self.random.choice(self.sources)
        workflow = self.world.start_with(self.task, {"workspace": workspace, "params": {"text": self.source}})
        return workflow, self.world.poll(self.task)

    def execute(self, assignment: Assignment, **changed: Any) -> None:
        self.world.execute(self.task, assignment, **changed)

    def content(self) -> str:
        return f"content {next(self.contents)}"

    def raw(self) -> list[str]:
        return sorted(path for path in self.world.files(self.branch) if path.startswith("raw/"))

    def commit(self, files: dict[str, str | None]) -> None:
        self.world.commit(files, branch=self.branch)

    def put_log(self, text: str | None) -> None:
        if self.world.files(self.branch).get(LOG) != text:
            self.commit({LOG: text})


def play_all(histories: list[History]) -> None:
    for history in histories:
        history.play()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_file_is_in_exactly_one_publication(world: World, seed: int) -> None:
    History(world, seed).play()


def test_a_ledger_that_forgets_reverts_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories can fail: without the rule that an entry's writes must stand, a file is lost."""
    from perago.runtime.ledger import Ledger

    monkeypatch.setattr(Ledger, "_is_same", lambda *_: True)
    histories = [History(world, seed) for seed in range(10)]
    with pytest.raises(AssertionError, match=r"taken|task's"):
        play_all(histories)
