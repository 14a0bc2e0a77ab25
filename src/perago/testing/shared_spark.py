"""The single Spark session of a test process, started for the first Spark trial and shared by all later ones.

Its scratch folder is outside the tests' folders, because the session outlives each test.  The only setting that it
takes from the environment is `PERAGO_SPARK_CONF` (for jars, for example).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from perago.backend import for_short_run
from perago.errors import RuntimeConfigError, install_extra
from perago.settings import load_settings
from perago.spark.places import SparkPlaces
from perago.spark.session import Sessions

_CONF = "PERAGO_SPARK_CONF"


@cache
def shared_places() -> SparkPlaces:
    """Return the places for all Spark trials in this process."""
    folder = tempfile.mkdtemp(prefix="perago-spark-")
    # Registered before the session's own exit handler, so that it runs after that handler.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environ = {_CONF: os.environ[_CONF]} if _CONF in os.environ else {}
    settings = for_short_run(load_settings(environ, root=Path(folder)))
    return SparkPlaces(settings, Sessions(settings), embedded=True)


def shared_session() -> object:
    """Return the session. Raises `RuntimeConfigError`, with the install command, if Spark is missing."""
    try:
        return shared_places().sessions.get()
    except ModuleNotFoundError as error:
        raise RuntimeConfigError(
            f"Spark is not installed ({error}): run `{install_extra('spark')}`, and install a Java 17 or later"
        ) from error
