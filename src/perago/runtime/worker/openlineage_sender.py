"""Builds OpenLineage events from reports, and sends them with the official client.

The only module that imports the client; the lineage thread imports it.  Names are chosen so that other tools find the same
datasets:

    job         namespace OPENLINEAGE_NAMESPACE, else `perago`; name `workflow.step`, without the number of an iteration
    run         UUIDv5 of the execution id, so that a twin of the same attempt is a run of its own
    parent run  the workflow: its id, or the UUIDv5 of it if it is no UUID
    dataset     namespace `lakefs://host/repository`, or `perago://host/root/repository` on the embedded lake;
                name `branch/path`, or the branch alone for a whole repository; version: the commit
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    source_code_location_job,
)
from openlineage.client.git import _find_git_dir, get_git_repo_url

from perago.declare.checks import PathCheck, label
from perago.declare.table_checks import TableCheck
from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.errors import TaskInputError
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import CheckRecord
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.worker.lineage import LAST_SEND_SECONDS, THREAD, RunReport
from perago.runtime.worker.plan import WorkerPlan
from perago.settings import Settings

PRODUCER = "urn:perago"
RUNS = uuid5(NAMESPACE_URL, "perago:execution")
WORKFLOWS = uuid5(NAMESPACE_URL, "perago:workflow")
_ITERATION = re.compile(r"__\d+$")
_GIT_COMMIT = re.compile(r"([0-9a-f]{40,64})(\+dirty)?")

Facets = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClientSender:
    """Sends events with the official client."""

    client: OpenLineageClient
    builder: EventBuilder

    def send(self, report: RunReport) -> None:
        """Send a report, or hand it to the client's own thread."""
        self.client.emit(self.builder.event(report))

    def close(self) -> None:
        """Send what the client's own thread still has."""
        self.client.close(LAST_SEND_SECONDS)


def open_sender(plan: WorkerPlan) -> ClientSender:
    """Open the client with its own configuration."""
    silence_retries()
    with _environment_kept():
        client = OpenLineageClient()
        location = client.config.facets.source_code_location
    builder = EventBuilder(
        lake_namespace(plan.settings, embedded=plan.spec.servers.embedded),
        Masker(secrets_of(plan.settings)),
        job_namespace=os.environ.get("OPENLINEAGE_NAMESPACE", "").strip() or "perago",
        repository_url=_no_url if location.disabled else lambda task: location.repo_url or _remote_url(task),
    )
    # The client would name the code in the worker's current folder, which need not be the task's.
    location.disabled = True
    return ClientSender(client, builder)


def silence_retries() -> None:
    """Keep the client's retries out of the log, where they would be several lines for each event that is lost.

    The first loss is logged with its cause.  `OPENLINEAGE_CLIENT_LOGGING` sets the level of the client's own log.
    """
    # Other threads use the same HTTP library.
    logging.getLogger("urllib3.connectionpool").addFilter(_not_by_lineage)
    if not os.environ.get("OPENLINEAGE_CLIENT_LOGGING"):
        logging.getLogger("openlineage").setLevel(logging.ERROR)


def _not_by_lineage(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD


def lake_namespace(settings: Settings, *, embedded: bool) -> str:
    """Return the beginning of the namespace of all datasets on the lake."""
    if embedded or settings.lakefs is None:
        return f"perago://{socket.gethostname()}{quote(settings.root.resolve().as_posix())}"
    return f"lakefs://{urlsplit(settings.lakefs.endpoint).netloc.rpartition('@')[2]}"


def run_id(execution_id: str) -> str:
    """Return the run id of an execution."""
    return str(uuid5(RUNS, execution_id))


def parent_run_id(workflow_id: str) -> str:
    """Return the run id of a workflow."""
    try:
        return str(UUID(workflow_id))
    except ValueError:
        return str(uuid5(WORKFLOWS, workflow_id))


@dataclass(frozen=True, slots=True)
class EventBuilder:
    """Builds events.  `mask` is applied to every text that may come from outside."""

    lake: str
    mask: Callable[[str], str]
    job_namespace: str = "perago"
    repository_url: Callable[[TaskDefinition], str | None] = lambda _: None

    def event(self, report: RunReport) -> RunEvent:
        """Return the event that a report stands for."""
        spec = _spec_of(report)
        checks = report.result.seen.checks if report.result is not None else ()
        return RunEvent(
            eventTime=report.at.isoformat(),
            eventType=RunState[report.state],
            run=Run(run_id(report.execution_id), facets=self._run_facets(report)),
            job=Job(self.job_namespace, _job_name(report.attempt), facets=self._job_facets(report)),
            inputs=list(self._inputs(report, spec, [check for check in checks if check.phase == "pre"])),
            outputs=list(self._outputs(report, spec, [check for check in checks if check.phase == "post"])),
            producer=PRODUCER,
        )

    def _run_facets(self, report: RunReport) -> Facets:
        attempt = report.attempt
        parent = parent_run.ParentRunFacet(
            run=parent_run.Run(parent_run_id(attempt.workflow_instance_id)),
            job=parent_run.Job(self.job_namespace, attempt.workflow_name or "workflow"),
            producer=PRODUCER,
        )
        facets: Facets = {"parent": parent}
        if report.reason:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                self.mask(report.reason), "Python", producer=PRODUCER
            )
        return facets

    def _job_facets(self, report: RunReport) -> Facets:
        facets: Facets = {
            "jobType": job_type_job.JobTypeJobFacet("BATCH", "PERAGO", "TASK", producer=PRODUCER)
        }
        code = report.result.seen.made_with.code if report.result is not None else ""
        if report.task is not None and (found := _GIT_COMMIT.fullmatch(code)):
            url = self.repository_url(report.task)
            if url is not None:
                facets["sourceCodeLocation"] = source_code_location_job.SourceCodeLocationJobFacet(
                    "git", self.mask(url), repoUrl=self.mask(url), version=found[0], producer=PRODUCER
                )
        return facets

    def _inputs(
        self, report: RunReport, spec: WorkspaceSpec | None, checks: Sequence[CheckRecord]
    ) -> Iterator[InputDataset]:
        if spec is None or report.given is None:
            return
        paths = ("",) if spec.reads is None else spec.reads
        for given in _given_workspaces(report.given.input):
            for path in paths:
                facets = self._facets(str(given.get("ref", "")), _columns(spec.pre, checks, path))
                found = self._assertions(_checks_on(path, paths, spec.pre, checks))
                yield InputDataset(
                    f"{self.lake}/{given['repository']}",
                    self._name(given["branch"], spec, path),
                    facets=facets,
                    inputFacets=found,
                )

    def _outputs(
        self, report: RunReport, spec: WorkspaceSpec | None, checks: Sequence[CheckRecord]
    ) -> Iterator[OutputDataset]:
        published = report.publication
        if published is None or spec is None:
            return
        paths = spec.writes if spec.writes is not None else ("",) if spec.reads is None else spec.reads
        for path in paths:
            facets = self._facets(published.ref, _columns(spec.post, checks, path))
            facets |= self._assertions(_checks_on(path, paths, spec.post, checks))
            yield OutputDataset(
                f"{self.lake}/{published.repository}",
                self._name(published.branch, spec, path),
                facets=facets,
                # The figures are those of the whole publication.
                outputFacets=_statistics(report) if len(paths) == 1 else {},
            )

    def _name(self, branch: str, spec: WorkspaceSpec, path: str) -> str:
        return self.mask(f"{branch}/{spec.object_prefix}{path}".rstrip("/"))

    def _facets(self, commit: str, columns: Mapping[str, str | None]) -> Facets:
        facets: Facets = {}
        if commit:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(commit, producer=PRODUCER)
        if columns:
            fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns.items()]
            facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
        return facets

    def _assertions(self, checks: Sequence[CheckRecord]) -> Facets:
        if not checks:
            return {}
        found = [
            data_quality_assertions_dataset.Assertion(
                self.mask(check.label),
                check.passed,
                severity=check.level or "error",
                actual=self.mask(check.found) or None,
            )
            for check in checks
        ]
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(found, producer=PRODUCER)
        return {"dataQualityAssertions": facet}


def _spec_of(report: RunReport) -> WorkspaceSpec | None:
    """Return the task's workspace with its paths filled, or None if there is none or its params are unknown."""
    task = report.task
    if task is None or task.workspace is None:
        return None
    if not task.workspace.names:
        return task.workspace
    if report.given is None:
        return None
    with suppress(TaskInputError):
        return task.workspace.filled(task.parse_params(json.dumps(report.given.input.get("params"))))
    return None


def _job_name(attempt: Attempt) -> str:
    step = attempt.reference_task_name
    step = _ITERATION.sub("", step) if attempt.iteration else step
    return f"{attempt.workflow_name}.{step}" if attempt.workflow_name else step


def _given_workspaces(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the workspaces of an input that nobody has checked yet."""
    workspace = given.get("workspace")
    for one in workspace if isinstance(workspace, list) else [workspace]:
        if isinstance(one, Mapping) and all(
            isinstance(one.get(key), str) for key in ("repository", "branch")
        ):
            yield one


def _checks_on(
    path: str, paths: Sequence[str], declared: Iterable[object], records: Sequence[CheckRecord]
) -> list[CheckRecord]:
    """Return the checks of one dataset: those that name it or a file in it, and those that name no dataset."""
    named = {_label(check): _path_of(check) for check in declared}
    return [
        record
        for record in records
        if not any(_is_in(named.get(record.label, ""), one) for one in paths)
        or _is_in(named.get(record.label, ""), path)
    ]


def _columns(
    declared: Iterable[object], records: Sequence[CheckRecord], path: str
) -> Mapping[str, str | None]:
    """Return the columns of a dataset with their types, as a check has found them; empty if none did."""
    passed = {record.label for record in records if record.passed}
    tables = [check for check in declared if isinstance(check, TableCheck) and check.table == path]
    for check in tables:
        if check.kind == "require_columns" and check.label() in passed:
            return dict(zip(check.columns, check.types or (None,) * len(check.columns), strict=True))
    return {}


def _label(check: Any) -> str:
    return label(check)


def _path_of(check: object) -> str:
    if isinstance(check, TableCheck):
        return check.table
    return check.pattern if isinstance(check, PathCheck) else ""


def _is_in(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")


def _statistics(report: RunReport) -> Facets:
    result = report.result
    if result is None:
        return {}
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            size=result.moved.uploaded, fileCount=result.seen.changed, producer=PRODUCER
        )
    }


def _no_url(_: TaskDefinition) -> str | None:
    return None


def _remote_url(task: TaskDefinition) -> str | None:
    """Return the address of the Git repository that a task's file is in, without a user's name and key."""
    return _remote_of(os.path.dirname(task.place.file))


@cache
def _remote_of(folder: str) -> str | None:
    git_dir = _find_git_dir(folder)
    url = get_git_repo_url(git_dir=git_dir) if git_dir is not None else None
    return re.sub(r"://[^/@]*@", "://", url) if url else None


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Take away the variables that the client adds for itself, which child processes would inherit."""
    before = set(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - before:
            if name.startswith("OPENLINEAGE__"):
                del os.environ[name]
