"""Gives a cluster's executors back while no attempt uses the session.

    master                           an idle session
    local, local-cluster             keeps its executors: they are this machine's
    spark://, yarn, k8s://           dynamic allocation removes its executors, and asks for new ones when it has work
    another, or no dynamic           stops; the next attempt starts another
      allocation

Dynamic allocation follows the shuffles (`shuffleTracking`), so it needs no shuffle service.  Each slot of a worker has a
driver of its own, so no driver may take the whole cluster: without other settings it takes two executors of one core, which
is Spark's own default on YARN and Kubernetes.  On a standalone cluster a larger executor is the driver's only one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping

from perago.spark.config import runs_here

_DYNAMIC = "spark.dynamicAllocation.enabled"
_MOST_EXECUTORS = 2
_MOST_CORES = 2


def cluster_defaults(master: str, idle: float, known: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults for an attempt's session on this master. `known` is the configuration set by the operator."""
    if not re.match(r"spark://|yarn|k8s://", master):
        return {}
    if is_off(known.get(_DYNAMIC, "true")):
        return _size_limit(master, known)
    seconds = f"{max(1, round(idle))}s"
    defaults = {
        _DYNAMIC: "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": seconds,
        # Otherwise an executor with shuffle files of an attempt that has ended stays until they are collected.
        "spark.dynamicAllocation.shuffleTracking.timeout": seconds,
    }
    if not master.startswith("spark://"):
        most = known.get("spark.executor.instances", str(_MOST_EXECUTORS))
        return {**defaults, "spark.dynamicAllocation.maxExecutors": most}
    return {**defaults, **_size_limit(master, known)}


def must_stop(master: str, conf: Mapping[str, str]) -> bool:
    """Return whether an idle session has to stop, because it would keep executors of a cluster."""
    return not runs_here(master) and is_off(conf.get(_DYNAMIC, "false"))


def is_off(value: str) -> bool:
    """Return whether a setting of Spark is not "true"."""
    return value.strip().lower() != "true"


def _size_limit(master: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the limit on a standalone driver, which would take every core of the cluster.

    It leaves room for one executor of the size that is set: Spark starts none that is larger than the limit.
    """
    if not master.startswith("spark://"):
        return {}
    cores = known.get("spark.executor.cores", "1").strip()
    most = max(_MOST_CORES, int(cores)) if cores.isdecimal() else _MOST_CORES
    return {"spark.executor.cores": "1", "spark.cores.max": str(most)}


class IdleTimer:
    """Calls `stop` once nobody has called `restart` for some seconds.  Thread-safe."""

    def __init__(self, seconds: float, stop: Callable[[], None]) -> None:
        self._seconds, self._stop = seconds, stop
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def restart(self) -> None:
        """Start counting the seconds anew."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self._seconds, self._stop)
            self._timer.name, self._timer.daemon = "perago-spark-idle", True
            self._timer.start()
