"""Checks the Spark master before Spark does: Spark says late, at length, and without naming the setting that it is wrong.

    local, local[N|*], local[N|*,M], local-cluster[N,C,M]    always right
    spark://HOST:PORT[,HOST:PORT…]                           one of them must accept a connection
    yarn                                                     needs Hadoop's configuration
    k8s://[https://]HOST[:PORT]                              not tried before a session: it may be behind a proxy
    another scheme                                           left to Spark, which may have a cluster manager for it

This module does not import pyspark.
"""

from __future__ import annotations

import os
import queue
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from perago.protocol.suggestions import did_you_mean
from perago.spark_defaults import chosen_master

CONNECT_SECONDS = 5.0
_LOCAL = re.compile(r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_KINDS = ("local", "local[*]", "local[2]", "spark://HOST:7077", "yarn")


def check_master(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raise `RuntimeConfigError` if this cannot be a Spark master, whatever is running."""
    if problem := _form_problem(master, environ):
        raise RuntimeConfigError(f"the Spark master {master!r} {problem}; {remedy(environ)}")


def check_reachable(
    master: str, environ: Mapping[str, str] = os.environ, *, seconds: float = CONNECT_SECONDS
) -> None:
    """Raise `RuntimeConfigError` if none of the masters of a standalone cluster accepts a connection in that time."""
    if master.startswith("spark://") and (problem := connection_problem(master, seconds)):
        raise RuntimeConfigError(f"the Spark master {master} does not answer ({problem}); {remedy(environ)}")


def remedy(environ: Mapping[str, str]) -> str:
    """Return the advice that names where the master comes from."""
    source = chosen_master(environ, default="")[1]
    where = {"environment": "PERAGO_SPARK_MASTER", "default": "PERAGO_SPARK_MASTER"}.get(source, source)
    return f"correct {where}, or set PERAGO_SPARK_MASTER=local[*] to run on this machine"


def connection_problem(master: str, seconds: float = CONNECT_SECONDS) -> str:
    """Return why no connection to the master's addresses comes about, or "" if one does, or none can be tried."""
    addresses = _addresses(master)
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    for address in addresses:
        # Looking up a name has no time limit of its own, so the thread of one that hangs is left behind.
        threading.Thread(target=lambda at=address: answers.put(_connect(at, seconds)), daemon=True).start()
    ends, problems = time.monotonic() + seconds, list[str]()
    while len(problems) < len(addresses):
        try:
            problem = answers.get(timeout=max(0.0, ends - time.monotonic()))
        except queue.Empty:
            return f"no connection within {seconds:g} s"
        if not problem:
            return ""
        problems.append(problem)
    return ", ".join(dict.fromkeys(problems))


def _form_problem(master: str, environ: Mapping[str, str]) -> str:
    if _LOCAL.fullmatch(master):
        return ""
    if master == "yarn":
        missing = not any(environ.get(name, "").strip() for name in _HADOOP)
        return f"needs Hadoop's configuration: set {' or '.join(_HADOOP)}" if missing else ""
    if master.startswith("spark://"):
        right = all(host and port for host, port in _addresses(master))
        return "" if right else "is not spark://HOST:PORT"
    if _SCHEME.fullmatch(master):
        return ""
    return f"is not known (masters are {', '.join(_KINDS)}, k8s://…){did_you_mean(master, _KINDS)}"


def _addresses(master: str) -> Sequence[tuple[str, int]]:
    """Return the hosts and ports of a master.  What is missing or invalid is empty or 0."""
    scheme, _, rest = master.partition("://")
    if scheme not in ("spark", "k8s"):
        return []
    found = []
    for one in rest.split(",") if scheme == "spark" else [rest]:
        parts = urlsplit(one if "://" in one else f"https://{one}" if scheme == "k8s" else f"//{one}")
        try:
            port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
        except ValueError:
            port = 0
        found.append((parts.hostname or "", port))
    return found


def _connect(address: tuple[str, int], seconds: float) -> str:
    host, port = address
    try:
        socket.create_connection(address, timeout=seconds).close()
    except TimeoutError:
        return f"no connection to {host}:{port} within {seconds:g} s"
    except socket.gaierror:
        return f"no address is known for host {host!r}"
    except (OSError, UnicodeError) as error:
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
    return ""
