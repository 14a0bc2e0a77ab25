"""`perago fence install`, `prove` and `remove`: manage the hard fence on a lakeFS branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from perago.backend import open_fence
from perago.cli import output
from perago.cli.options import AsJson, Repository, Yes
from perago.cli.server_choice import Asks, choose_servers
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.settings import LAKEFS_NAMES

Branch = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch that workflows publish to.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Manage the hard fence: lakeFS itself refuses a publication if the branch has moved in the meantime.",
)


@contextmanager
def _lakefs(question: str | None = None, *, yes: bool = False) -> Iterator[Lake]:
    """Open lakeFS, name it on stderr, and ask the user to confirm `question`, if there is one.

    A command that leaves no changes behind has no question.
    """
    asks: Asks = "before it writes" if question is not None else "never"
    choice = choose_servers(None, True, asks=asks, yes=yes, lake_only=True)
    if choice.settings.lakefs is None:
        raise RuntimeConfigError(
            f"lakeFS is not configured: set {', '.join(LAKEFS_NAMES)} (or run `lakectl config`); the embedded lake needs no "
            "fence, it compares heads itself"
        )
    with choice.open_lake() as lake:
        if question is not None:
            choice.agree(question)
        yield lake


@app.command("install")
def install(
    repository: Repository, branch: Branch = "main", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Install the fence on a branch, by a merge."""
    with _lakefs(f"Install the fence on {repository}/{branch}, by a merge?", yes=yes) as lake:
        done = open_fence(lake).install(repository, branch)
    if as_json:
        output.data(asdict(done))
    elif not done.changed:
        output.say(f"{repository}/{branch} already carries the fence, at {done.head}")
    else:
        output.say(f"{repository}/{branch} carries the fence now, at {done.head}")
        output.say(
            "workflows that start from this commit or a later one are fenced; from older refs they stay soft"
        )


@app.command("prove")
def prove(repository: Repository, branch: Branch = "main", as_json: AsJson = False) -> None:
    """Show that the fence holds: try merges that lakeFS must refuse, on separate branches. Takes a few seconds."""
    with _lakefs() as lake:
        fence = open_fence(lake)
        proof = fence.prove(repository, branch)
        order = fence.prove_order(repository, branch)
    if as_json:
        output.data({**asdict(proof), **asdict(order)})
        return
    output.say(f"refused, as it must be: {proof.refused}")
    output.say(f"let through, as it must be: {proof.let_through}")
    output.say(f"in flight while its source was dropped, and landed all the same: {order.landed}")
    output.say(f"in flight while its source was dropped, and stopped by the barrier: {order.stopped}")
    output.say(f"the fence of {repository}/{branch} holds")


@app.command("remove")
def remove(
    repository: Repository, branch: Branch = "main", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Remove the fence from a branch, by a merge."""
    with _lakefs(f"Remove the fence from {repository}/{branch}, by a merge?", yes=yes) as lake:
        done = open_fence(lake).remove(repository, branch)
    if as_json:
        output.data(asdict(done))
    elif not done.changed:
        output.say(f"{repository}/{branch} carries no fence")
    else:
        output.say(f"{repository}/{branch} no longer carries the fence, at {done.head}")
