"""What Spark's JVM logs: warnings and errors, without those that every start brings and nobody can act on.

The lines go to the attempt that starts Spark, among what its body prints.  An operator's own configuration of log4j wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_OF_EVERY_START = (
    "org.apache.spark.util.Utils",  # the host's name is a loopback address
    "org.apache.spark.SparkConf",  # the cluster manager may override the scratch folder
    "org.apache.hadoop.util.NativeCodeLoader",  # Hadoop's native library is not there
)
_CONFIGURATION = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def log_options(scratch: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """JVM options for the driver's log; none where the operator configures it, or the path would be torn at a space."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if " " in str(scratch) or (folder and any(Path(folder).glob("log4j2*"))):
        return ()
    file = scratch / "log4j2.properties"
    quiet = "".join(
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = error\n"
        for number, name in enumerate(_OF_EVERY_START)
    )
    file.write_text(_CONFIGURATION + quiet, encoding="utf-8")
    return (f"-Dlog4j2.configurationFile={file.as_uri()}",)
