"""Chooses the servers for a command, and asks for confirmation before the command changes anything.

    option      servers
    --remote    lakeFS and Conductor
    --local     the embedded ones
    neither     the embedded ones, unless PERAGO_SERVERS=remote; for `start`, `register` and `submit`, the real ones

Every command that reads or writes a lake names it on stderr, and reading creates nothing.  On the real servers, a
command that writes shows what it would do and asks for confirmation.  On the embedded servers, only commands that
delete something ask, and `merge --diff`.  Without a terminal, `--yes` is required.  `start` never asks: it is a
service, and `--register` reports what it writes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perago.backend import Embedded, Real, has_local_lake
from perago.cli import output
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake, ReadableLake
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.registration import (
    TaskDefChange,
    WorkflowChange,
    plan_changes,
    plan_workflows,
)
from perago.settings import LAKEFS_NAMES, Settings, load_settings, shown_address

if TYPE_CHECKING:
    from perago.declare.task import TaskDefinition

Asks = Literal["never", "before it writes", "before it deletes", "before it merges"]

_DONE = {"create": "created", "update": "updated", "keep": "unchanged"}
_PLANNED = {"create": "would be created", "update": "would be updated", "keep": "unchanged"}


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """The servers that one command uses, and whether the user agreed to every change in advance."""

    settings: Settings
    yes: bool = False

    @property
    def remote(self) -> bool:
        """True for the real servers, False for the embedded ones."""
        return self.settings.servers == "remote"

    def backend(self, *, conductor: bool = True) -> Embedded | Real:
        """Return the servers as a backend. Raises `RuntimeConfigError` if a real server is not configured."""
        if not self.remote:
            return Embedded(self.settings)
        need_servers(self.settings, conductor=conductor)
        return Real(self.settings)

    @contextmanager
    def open_lake(self, *, create: bool = False) -> Iterator[Lake]:
        """Open the lake, name it on stderr, and close it afterwards.

        With `create`, a missing embedded lake is created.
        """
        if not self.remote and not create:
            self._need_embedded_lake()
        lake = self.backend(conductor=False).open_lake()
        try:
            self.name_lake(lake)
            yield lake
        finally:
            lake.close()

    def name_lake(self, lake: Lake | None = None) -> None:
        """Print the lake's name and location to stderr.

        An open lakeFS is also asked for its version, so that a different server is not mistaken for lakeFS.
        """
        from perago.backend import name_lake

        if not self.remote:
            output.note(f"lake: embedded, {self.settings.root / 'lake'}")
        elif lake is not None:
            output.note(f"lake: {name_lake(lake, self.settings)}")
        elif self.settings.lakefs is not None:
            output.note(f"lake: lakeFS at {shown_address(self.settings.lakefs.endpoint)}")

    def agree(self, question: str) -> None:
        """Ask for confirmation of a change on the real servers. Ends the command if the answer is no."""
        if self.remote:
            self.agree_everywhere(question)

    def agree_everywhere(self, question: str) -> None:
        """Ask for confirmation, even on the embedded servers. Ends the command if the answer is no."""
        if not self.yes and not output.confirm(question):
            output.fail("nothing was changed")

    def options(self, root: Path | None) -> list[str]:
        """Return the options that make another command use the same servers as this one."""
        where = ["--root", str(root)] if root is not None else []
        if self.remote:
            return [*where, "--remote"]
        return [*where, "--local"] if load_settings(os.environ).servers == "remote" else where

    def _need_embedded_lake(self) -> None:
        if not has_local_lake(self.settings):
            raise RuntimeConfigError(
                f"there is no lake below {self.settings.root}: go to the folder that has it, name its root with --root, "
                "or create one with `perago put REPO FOLDER --create`"
            )


def choose_servers(
    root: Path | None,
    remote: bool | None,
    *,
    asks: Asks = "never",
    yes: bool = False,
    lake_only: bool = False,
) -> ServerChoice:
    """Return the servers that a command uses, and print a note if the environment configures others.

    Exits if the command needs confirmation (`asks`) but cannot ask for it, because there is no terminal.
    """
    settings = load_settings(os.environ, root=root, remote=remote)
    choice = ServerChoice(settings, yes)
    refuse_without_terminal(asks if choice.remote or asks != "before it writes" else "never", yes=yes)
    if not choice.remote and remote is None:
        note_unused_servers(settings, lake_only=lake_only)
    return choice


def open_lake_to_read(root: Path | None, remote: bool | None) -> AbstractContextManager[ReadableLake]:
    """Return the lake for a command that only reads it."""
    return choose_servers(root, remote, lake_only=True).open_lake()


def servers_to_read(root: Path | None, remote: bool | None) -> Embedded | Real:
    """Return the servers whose runs a command reads. If Conductor is used, its address is printed on stderr."""
    choice = choose_servers(root, remote)
    if choice.remote and choice.settings.conductor is not None:
        output.note(f"Conductor: {Masker(secrets_of(choice.settings))(choice.settings.conductor.url)}")
    return Real(choice.settings) if choice.remote else Embedded(choice.settings)


def refuse_without_terminal(asks: Asks, *, yes: bool) -> None:
    """Exit if the command needs confirmation but cannot ask for it: stdin is not a terminal and --yes was not given."""
    if asks != "never" and not yes and not sys.stdin.isatty():
        does = {
            "before it writes": "changes anything on the real servers",
            "before it deletes": "removes anything",
            "before it merges": "merges what it has shown",
        }
        output.refuse(
            f"this command asks before it {does[asks]}, and there is no terminal to ask on: add --yes to go ahead"
        )


def note_unused_servers(settings: Settings, *, lake_only: bool = False) -> None:
    """Print a note if environment variables configure servers that the command does not use."""
    if os.environ.get("PERAGO_SERVERS", "").strip():
        return
    found = ["lakeFS (LAKECTL_*)"] if settings.lakefs is not None else []
    if settings.conductor is not None and not lake_only:
        found.append("Conductor (CONDUCTOR_SERVER_URL)")
    if found:
        output.note(
            f"{' and '.join(found)} {'are' if len(found) > 1 else 'is'} configured, but not used: this works on "
            f"{settings.root}; add --remote, or set PERAGO_SERVERS=remote, to work on the real servers"
        )


def need_servers(settings: Settings, *, lakefs: bool = True, conductor: bool = True) -> None:
    """Raise `RuntimeConfigError` if a real server that the command needs is not configured."""
    missing = {}
    if lakefs and settings.lakefs is None:
        missing["lakeFS"] = f"{', '.join(LAKEFS_NAMES)} (or run `lakectl config`)"
    if conductor and settings.conductor is None:
        missing["Conductor"] = "CONDUCTOR_SERVER_URL"
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RuntimeConfigError(
            f"{' and '.join(missing)} {verb} not configured: set {' and '.join(missing.values())}, or add --local to work "
            "on the embedded servers"
        )


def resumes_remotely(root: Path | None, run_id: str | None, *, remote: bool | None) -> bool:
    """Return whether a recorded run is on the real servers.

    Raises `RuntimeConfigError` if an option contradicts this.
    """
    from perago.runtime.runs.record import find_run

    found = find_run(load_settings(os.environ, root=root).root, run_id)
    if remote is not None and remote is found.embedded:
        which, option = (
            ("the embedded servers", "--remote") if found.embedded else ("lakeFS and Conductor", "--local")
        )
        raise RuntimeConfigError(f"run {found.id} is on {which}: leave out {option}")
    if not found.embedded:
        output.note(f"run {found.id} is on lakeFS and Conductor")
    return not found.embedded


def agree_to_run(
    choice: ServerChoice,
    servers: Real,
    tasks: Iterable[TaskDefinition],
    definition: Mapping[str, Any],
    *,
    imports: Iterable[tuple[str, Path]],
) -> None:
    """Show the servers and what a run would change on them, and ask for confirmation."""
    from perago.backend import name_orchestrator

    with servers.opened() as (lake, orchestrator):
        choice.name_lake(lake)
        output.note(f"orchestrator: {name_orchestrator(orchestrator, servers.settings)}")
        changes = plan_changes(orchestrator, list(tasks))
        workflows = plan_workflows(orchestrator, {"the workflow": definition})
    for name, folder in imports:
        output.note(f"repository {name}: would be created from {folder}")
    for line, style in format_changes(changes, workflows, planned=True):
        output.note(line, style)
    choice.agree(f"Start workflow {definition['name']} there?")


def format_changes(
    changes: Iterable[TaskDefChange], workflows: Iterable[WorkflowChange], *, planned: bool
) -> Iterator[tuple[str, str]]:
    """Yield lines with their styles: each change, followed by the old and new values of its fields.

    `planned` is True if the changes have not been applied yet.
    """
    words = _PLANNED if planned else _DONE
    for change in changes:
        yield f"{change.name}: {words[change.action]}", "bold"
        yield from _diff(change.fields)
    for workflow in workflows:
        yield f"workflow {workflow.name} version {workflow.version}: {words[workflow.action]}", "bold"
        yield from _diff(workflow.fields)


def _diff(fields: Iterable[tuple[str, Any, Any]]) -> Iterator[tuple[str, str]]:
    for path, new, old in fields:
        if old is not None:
            yield f"  - {path}: {json.dumps(old, ensure_ascii=False)}", "red"
        if new is not None:
            yield f"  + {path}: {json.dumps(new, ensure_ascii=False)}", "green"
