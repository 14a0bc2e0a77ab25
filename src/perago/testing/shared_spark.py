"""The one Spark session of a test process: made for the first Spark task that is tried, shared by all that follow.

Its scratch folder is not below a test's own folder, which goes when the test is over, while the session lives on.  The
session takes `PERAGO_SPARK_CONF` from the environment (jars, say), and nothing else.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from perago.assembly import for_short_run
from perago.errors import RuntimeConfigError, install_extra
from perago.settings import load_settings
from perago.spark.places import SparkPlaces
from perago.spark.session import Sessions

_CONF = "PERAGO_SPARK_CONF"


@cache
def shared_places() -> SparkPlaces:
    """Where the Spark tasks of all trials of this process work."""
    folder = tempfile.mkdtemp(prefix="perago-spark-")
    # Registered before the session's own end, and so done after it.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environ = {_CONF: os.environ[_CONF]} if _CONF in os.environ else {}
    settings = for_short_run(load_settings(environ, root=Path(folder)))
    return SparkPlaces(settings, Sessions(settings), embedded=True)


def shared_session() -> object:
    """The session itself; says what to install where there is no Spark."""
    try:
        return shared_places().sessions.get()
    except ModuleNotFoundError as error:
        raise RuntimeConfigError(
            f"Spark is not installed ({error}): run `{install_extra('spark')}`, and install a Java 17 or later"
        ) from error
