"""`perago doctor`: check the settings, the machine and the servers, and print each finding with its remedy.

Problems are printed first, then all that works.  Settings are listed only on request.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import Annotated

import typer

from perago import __version__
from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, read_repository
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, TaskDefinitionError
from perago.protocol.names import probe_branch_name
from perago.runtime.doctor.doctor import DoctorRequest, examine
from perago.runtime.doctor.finding import Finding, Level, is_broken
from perago.runtime.doctor.local_checks import check_python
from perago.runtime.doctor.settings_checks import PART as SETTING
from perago.runtime.doctor.settings_checks import Setting, SettingsReport, read_settings
from perago.runtime.observe.sanitize import Masker, printable, secrets_of

Repository = Annotated[
    str | None,
    typer.Argument(
        metavar="REPO[@BRANCH]",
        help="A repository in which to test the permissions of the keys, on a scratch branch.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks", metavar="TARGET", help="Compare the TaskDefs of these modules or files with Conductor's."
    ),
]
ShowSettings = Annotated[
    bool, typer.Option("--settings", help="List every setting too, with its value and source.")
]
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "dim"}


def doctor(
    repository: Repository = None,
    tasks: Tasks = None,
    root: Root = None,
    remote: Remote = None,
    show_settings: ShowSettings = False,
    as_json: AsJson = False,
) -> None:
    """Check settings, machine and servers, and say what is broken and how to fix it."""
    report = read_settings(os.environ, root=root, remote=remote)
    mask = Masker(secrets_of(report.settings))
    as_lines = not as_json and not sys.stdout.isatty()
    settings = [Setting(one.name, mask(one.value), one.source) for one in report.shown]
    findings: list[Finding] = []
    with _without_logs():
        for finding in _findings(report, repository, tasks or []):
            findings.append(finding.masked(mask))
            # Print each problem immediately, because the next check may wait for a slow server.
            if as_lines and _is_problem(findings[-1]):
                output.say(_line(findings[-1]))
    if as_json:
        output.data(
            {
                "broken": is_broken(findings),
                "settings": [asdict(setting) for setting in settings],
                "findings": [asdict(finding) for finding in findings],
            }
        )
    else:
        rest = [finding for finding in findings if not _is_problem(finding)]
        if not show_settings:
            rest.append(_settings_summary(settings))
        if as_lines:
            for finding in rest:
                output.say(_line(finding))
            for setting in settings if show_settings else ():
                output.say(f"ok    {SETTING}: {setting.name} is {setting.value} ({setting.source})")
        else:
            problems = [finding for finding in findings if _is_problem(finding)]
            _print_tables([*problems, *rest], settings if show_settings else [])
    if is_broken(findings):
        raise typer.Exit(output.FAILED)


def _findings(report: SettingsReport, repository: str | None, targets: Sequence[str]) -> Iterator[Finding]:
    # Imported here because the adapters import HTTP and S3 libraries, which other commands do not need.
    from perago.backend import ProbedServers

    yield check_python(__version__)
    yield from report.invalid
    yield from _invalid_spark_conf(report)
    yield from _spark_master(report)
    tasks: list[TaskDefinition] = []
    if targets:
        try:
            tasks = load_tasks(targets)
        except TaskDefinitionError as error:
            yield Finding(
                "tasks", "fail", str(error), f"run `perago check {' '.join(targets)}` to see all mistakes"
            )
    name, branch = read_repository(repository) if repository is not None else (None, None)
    wanted = DoctorRequest(name, branch or "main", tuple(tasks), tuple(targets))
    yield from examine(ProbedServers(report.settings), wanted, os.environ, _new_scratch_name)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Silence logging, because the findings already contain whatever the checks would log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _invalid_spark_conf(report: SettingsReport) -> Iterator[Finding]:
    from perago.spark_defaults import parse_conf

    try:
        parse_conf(report.settings.spark_conf)
    except RuntimeConfigError as error:
        yield Finding(SETTING, "fail", str(error), "correct or unset PERAGO_SPARK_CONF")


def _spark_master(report: SettingsReport) -> Iterator[Finding]:
    """Try the Spark master, without starting Spark.  Its time is limited."""
    if find_spec("pyspark") is None:
        return
    from perago.spark.config import runs_here
    from perago.spark.master import check_master, connection_problem, remedy
    from perago.spark_defaults import chosen_master

    master, part = report.settings.spark_master, "Spark master"
    try:
        check_master(master)
    except RuntimeConfigError as error:
        says, _, advice = str(error).rpartition("; ")
        yield Finding(part, "fail", says, advice)
        return
    if problem := connection_problem(master):
        # A Kubernetes API may be reachable through a proxy only, which Spark knows.
        level: Level = "warn" if master.startswith("k8s://") else "fail"
        yield Finding(part, level, f"{master} does not answer ({problem})", remedy(os.environ))
    else:
        tried = (
            "accepts connections"
            if master.startswith(("spark://", "k8s://"))
            else "is not tried before a session"
        )
        here = "is on this machine" if runs_here(master) else tried
        source = chosen_master(os.environ, default="")[1]
        where = {"environment": "PERAGO_SPARK_MASTER", "default": "the default"}.get(source, source)
        yield Finding(part, "ok", f"{master} {here} ({where})")


def _new_scratch_name() -> str:
    """Return a dated name for a probe branch, so that a sweep recognizes the branch if doctor is killed."""
    return probe_branch_name(time.time(), uuid.uuid4().hex[:12])


def _is_problem(finding: Finding) -> bool:
    return finding.level in ("fail", "warn")


def _settings_summary(settings: Sequence[Setting]) -> Finding:
    given = sum(setting.source != "default" for setting in settings)
    says = f"{given} of {len(settings)} are set, and the others have their defaults"
    return Finding("settings", "ok", says, "`perago doctor --settings` lists them")


def _line(finding: Finding) -> str:
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{finding.level:<4}  {finding.part}: {finding.says}{remedy}"


def _print_tables(findings: Sequence[Finding], settings: Sequence[Setting]) -> None:
    # Imported here because Rich is slow to import, and most output does not need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=None, title="findings", title_justify="left")
    for heading in ("", "part", "what was found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(
            Text(finding.level, style=_STYLES[finding.level]),
            *(Text(printable(text)) for text in (finding.part, finding.says, finding.remedy)),
        )
    console.print(table)
    if not settings:
        return
    table = Table(box=None, title="\nsettings", title_justify="left")
    for heading in ("name", "value", "source"):
        table.add_column(heading, overflow="fold")
    for setting in settings:
        table.add_row(*(Text(printable(text)) for text in (setting.name, setting.value, setting.source)))
    console.print(table)
