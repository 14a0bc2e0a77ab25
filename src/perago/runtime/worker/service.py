"""A worker as a service: logged, counted, with its status page, until a signal ends it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack

from perago.runtime.observe.events import counting
from perago.runtime.observe.health import Pulse, check
from perago.runtime.observe.http import StatusServer, parse_address
from perago.runtime.observe.logs import logging_to
from perago.runtime.observe.metrics import NoMetrics, open_metrics
from perago.runtime.process.orphans import reaping_orphans
from perago.runtime.root.folder import make_root
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.supervisor import Supervisor

log = logging.getLogger("perago.start")


def serve(plan: WorkerPlan, worker: Supervisor, *, http: str | None, environ: Mapping[str, str]) -> int:
    """Run until a signal; `http` is where /healthz and /metrics are served; returns the exit code."""
    make_root(plan.settings.root)
    with ExitStack() as opened:
        opened.enter_context(logging_to(plan.settings, name="supervisor"))
        opened.enter_context(reaping_orphans())
        metrics = opened.enter_context(
            open_metrics(environ, worker.pulse, worker_id=plan.worker_id, prometheus=http is not None)
        )
        if http is not None:
            _show_status(opened, http, worker.pulse, metrics)
        return worker.run(on_event=counting(metrics))


def _show_status(opened: ExitStack, where: str, pulse: Pulse, metrics: NoMetrics) -> None:
    server = opened.enter_context(
        StatusServer(parse_address(where), health=lambda: check(pulse), metrics=metrics.exposition)
    )
    host, port = server.address
    log.info("serving /healthz and /metrics on http://%s:%d", host, port)
