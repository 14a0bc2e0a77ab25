"""One run of `perago doctor`: runs all checks in report order, and yields each finding as soon as it is known.

A server that does not respond is reported in one line, and the checks that need it are skipped.  lakeFS checks run on
the caller's thread, so that scratch branches are still dropped after an interrupt.  The lakeFS client puts a timeout on
every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from perago.backend import ProbedServers
from perago.declare.task import TaskDefinition
from perago.errors import PeragoError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.doctor.finding import LONGEST, Finding, call_with_time_limit
from perago.runtime.doctor.local_checks import (
    Skew,
    check_clock,
    check_disks,
    check_java,
    check_spark,
    has_spark,
    read_skew,
)
from perago.runtime.doctor.permission_probe import PermissionProbe
from perago.runtime.doctor.server_checks import (
    check_actions,
    check_conductor,
    check_fence,
    check_lakefs,
    check_marker,
    check_permissions,
    check_repository,
    check_taskdefs,
)
from perago.settings import LAKEFS_NAMES, shown_address


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """A request from the command line: a repository and branch, and tasks with the targets they come from."""

    repository: str | None = None
    branch: str = "main"
    tasks: tuple[TaskDefinition, ...] = ()
    targets: tuple[str, ...] = ()


def examine(
    servers: ProbedServers, wanted: DoctorRequest, environ: Mapping[str, str], new_name: Callable[[], str]
) -> Iterator[Finding]:
    """Check the machine and the servers.  `new_name` returns names for scratch branches."""
    yield check_java(environ, needed=has_spark())
    yield check_spark()
    yield from check_disks(servers.settings)
    yield from _lake(servers, wanted, new_name)
    yield from _conductor(servers, wanted)


def _lake(servers: ProbedServers, wanted: DoctorRequest, new_name: Callable[[], str]) -> Iterator[Finding]:
    """Check every configured lake.  The repository is checked only on the lake that commands use."""
    settings = servers.settings
    remote = settings.servers == "remote"
    if settings.lakefs is not None:
        where = shown_address(settings.lakefs.endpoint)
        with closing(servers.open_lakefs()) as lake:
            answers = list(check_lakefs(lake, where, settings.transfer))
            yield from answers
            if all(finding.level == "ok" for finding in answers):
                yield check_clock("lakeFS", _skew(settings.lakefs.endpoint), signs=True)
                if remote:
                    yield from _repository(lake, servers, wanted, new_name)
    elif remote:
        remedy = f"set {', '.join(LAKEFS_NAMES)}, or leave out --remote and PERAGO_SERVERS"
        yield Finding("lake", "fail", "lakeFS is not configured, and commands use it here", remedy)
    if not remote:
        yield from _embedded(servers, wanted, new_name)


def _embedded(
    servers: ProbedServers, wanted: DoctorRequest, new_name: Callable[[], str]
) -> Iterator[Finding]:
    try:
        lake = servers.open_embedded()
    except PeragoError as error:
        yield Finding("lake", "fail", str(error), "name another folder with --root or PERAGO_ROOT")
        return
    configured = servers.settings.lakefs is not None
    why = "commands use it unless --remote is given" if configured else "lakeFS is not configured"
    if lake is None:
        yield Finding("lake", "ok", f"embedded: {why}; there is none below {servers.settings.root} yet")
        if wanted.repository is not None:
            made_by = f"perago put {wanted.repository} FOLDER --create"
            says = f"there is no lake below {servers.settings.root}, so no repository either"
            other = f"; for one on lakeFS, `perago doctor {wanted.repository} --remote`" if configured else ""
            yield Finding(f"repository {wanted.repository}", "fail", says, f"`{made_by}` makes it{other}")
        return
    with closing(lake):
        yield Finding("lake", "ok", f"{lake.server()}: {why}")
        yield from _repository(lake, servers, wanted, new_name)


def _repository(
    lake: Lake, servers: ProbedServers, wanted: DoctorRequest, new_name: Callable[[], str]
) -> Iterator[Finding]:
    remote = servers.settings.servers == "remote"
    if wanted.repository is None:
        asks = "run `perago doctor REPO` to check them"
        yield Finding("permissions, fence", "skip", "not checked: they belong to a repository", asks)
        return
    found, head = check_repository(lake, wanted.repository, wanted.branch, remote=remote)
    yield found
    if head is None:
        return
    files = servers.fence_files() if remote else {}
    probe = PermissionProbe(lake, wanted.repository, head, (new_name(), new_name()), files)
    result = probe.examine()
    yield from check_permissions(result, wanted.repository)
    if remote:
        yield check_actions(result)
    yield check_fence(lake, wanted.repository, wanted.branch, head, servers.settings.fence)
    yield from check_marker(lake, wanted.repository, wanted.branch, head)


def _conductor(servers: ProbedServers, wanted: DoctorRequest) -> Iterator[Finding]:
    conductor = servers.settings.conductor
    if conductor is None:
        yield Finding("Conductor", "ok", "embedded: CONDUCTOR_SERVER_URL is not set")
        return
    where = shown_address(conductor.url)
    late = Finding(
        "Conductor",
        "fail",
        f"at {where} gave no whole answer within {LONGEST:g} s",
        "check CONDUCTOR_SERVER_URL, and that Conductor is up",
    )
    # Open the client inside the time limit too: if there are keys, it requests a token right away.
    answers = call_with_time_limit(LONGEST, lambda: _ask_conductor(servers, wanted, where), [late])
    yield from answers
    if answers[0].level == "ok":
        yield check_clock("Conductor", _skew(conductor.url), signs=False)


def _ask_conductor(servers: ProbedServers, wanted: DoctorRequest, where: str) -> list[Finding]:
    with closing(servers.open_conductor()) as orchestrator:
        found = [check_conductor(orchestrator, where)]
        if found[0].level == "ok":
            found += _taskdefs(orchestrator, wanted.tasks, wanted.targets)
        return found


def _taskdefs(
    orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], targets: Sequence[str]
) -> Iterator[Finding]:
    if tasks:
        yield from check_taskdefs(orchestrator, tasks, targets)
    elif not targets:
        asks = "run `perago doctor --tasks tasks.py` with your own files to compare them"
        yield Finding("TaskDefs", "skip", "not checked: they belong to tasks", asks)


def _skew(url: str) -> Skew | None:
    return call_with_time_limit(LONGEST, lambda: read_skew(shown_address(url)), None)
