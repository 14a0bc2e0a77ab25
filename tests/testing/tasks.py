"""The tasks of these tests, as an author would write them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from perago import RetryPolicy, TaskControls, TaskFailed, TimeoutPolicy, WorkspaceSpec, require_file, task

OWNER = "a@example.com"


class Params(BaseModel):
    text: str = "made"


class Made(BaseModel):
    length: int


class Renamed(BaseModel):
    long_name: str = Field(alias="longName")


@task(name="make", owner_email=OWNER, workspace=WorkspaceSpec(prefix="/data", pre=[require_file("in.txt")]))
def make(workspace: Path, params: Params) -> Made:
    (workspace / "out.txt").write_text((workspace / "in.txt").read_text() + params.text)
    return Made(length=len(params.text))


@task(name="plain", owner_email=OWNER)
def plain(params: Params) -> Made:
    return Made(length=len(params.text))


@task(name="renamed", owner_email=OWNER)
def renamed(params: Renamed) -> Made:
    return Made(length=len(params.long_name))


@task(name="talk", owner_email=OWNER, workspace=WorkspaceSpec(prefix="/data"))
def talk(workspace: Path, params: Params) -> Made:
    print("printed", params.text)
    print("to stderr", file=sys.stderr)
    logging.getLogger("tasks").info("logged")
    logging.getLogger("tasks").debug("not for people")
    own = logging.getLogger("own")
    own.addHandler(logging.StreamHandler())
    own.warning("by its own handler")
    print("without an end", end="")
    return Made(length=0)


@task(name="fail", owner_email=OWNER, workspace=WorkspaceSpec(prefix="/data"))
def fail(workspace: Path, params: Params) -> Made:
    (workspace / "half.txt").write_text("half")
    raise KeyError(params.text)


@task(name="tidy", owner_email=OWNER, workspace=WorkspaceSpec(prefix="/data"))
def tidy(workspace: Path, params: Params) -> Made:
    (workspace / "old.txt").unlink()
    (workspace / "same.txt").write_text("same")
    (workspace / "new.txt").write_text("new")
    (workspace / "changed.txt").write_text("after")
    return Made(length=0)


def counting(
    policy: str = "replace", *, retries: int = 3, delay: int = 60, fails: int = 0
) -> Callable[..., Any]:
    """A task whose output tells how often its body has run; it fails so many times first."""
    runs = 0

    @task(
        name="count",
        owner_email=OWNER,
        workspace=WorkspaceSpec(prefix="/data", on_abandoned=policy),
        controls=TaskControls(
            retry=RetryPolicy(count=retries, delay_seconds=delay), timeout=TimeoutPolicy(response_seconds=60)
        ),
    )
    def count(workspace: Path, params: Params) -> Made:
        nonlocal runs
        runs += 1
        print(f"run {runs}")
        if runs <= fails:
            raise TaskFailed(f"run {runs} fails")
        (workspace / "out.txt").write_text(f"of run {runs}")
        return Made(length=runs)

    return count
