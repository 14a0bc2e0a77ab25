"""Gives Spark access to a lakeFS repository, through Hadoop's s3a and lakeFS's S3 gateway.

The keys are set per repository in the running session, not in its configuration.  The configuration would expose them
on the JVM's command line, and would also send every other `s3a://` address in a body to lakeFS.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from perago.settings import LakeFSSettings
from perago.spark.config import Packages
from perago.spark_defaults import parse_conf, spark_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The versions of the AWS SDK and of the analytics accelerator that each Hadoop version was built with.
_BUILT_WITH = {"3.5.0": ("2.35.4", "1.3.1")}
_HADOOP_JAR = re.compile(r"hadoop-client-api-(.+)\.jar")
_OWN_PACKAGES = "spark.jars.packages"


def s3a_packages(environ: Mapping[str, str], conf: str = "") -> Packages:
    """Return the packages that give Spark s3a, in the versions that fit the Hadoop inside the Spark that will run.

    Returns none if the operator's configuration names a hadoop-aws.  Raises `RuntimeConfigError` for an unknown Hadoop.
    """
    named = {**spark_defaults(environ), **parse_conf(conf)}.get(_OWN_PACKAGES, "")
    if "org.apache.hadoop:hadoop-aws:" in named:
        return Packages()
    version = hadoop_version(environ)
    if version not in _BUILT_WITH:
        raise RuntimeConfigError(
            f"this Spark bundles Hadoop {version or 'of an unknown version'}, and Perago knows the packages for direct "
            f"placement only for {', '.join(_BUILT_WITH)}: install one of the supported PySpark versions, or name them "
            f"yourself: PERAGO_SPARK_CONF={_OWN_PACKAGES}=org.apache.hadoop:hadoop-aws:{version or 'VERSION'}"
        )
    sdk, accelerator = _BUILT_WITH[version]
    # Only the parts of the SDK that s3a needs: all of it is 600 MB.
    return Packages(
        names=(
            f"org.apache.hadoop:hadoop-aws:{version}",
            f"software.amazon.awssdk:s3:{sdk}",
            f"software.amazon.awssdk:s3-transfer-manager:{sdk}",
            f"software.amazon.awssdk:sts:{sdk}",
            f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{accelerator}",
        ),
        excludes=("software.amazon.awssdk:bundle",),
    )


def hadoop_version(environ: Mapping[str, str]) -> str:
    """Return the version of the Hadoop inside SPARK_HOME, or else inside PySpark. Returns "" if there is none."""
    home = environ.get("SPARK_HOME")
    package = find_spec("pyspark")
    if not home and (package is None or package.origin is None):
        return ""
    jars = Path(home or str(package and package.origin and Path(package.origin).parent)) / "jars"
    found = (_HADOOP_JAR.fullmatch(jar.name) for jar in sorted(jars.glob("hadoop-client-api-*.jar")))
    return next((match[1] for match in found if match), "")


def open_bucket(spark: SparkSession, repository: str, lakefs: LakeFSSettings) -> None:
    """Configure the session to read and write a repository as the bucket `s3a://<repository>`."""
    values = {
        "endpoint": lakefs.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": str(lakefs.endpoint.startswith("https:")).lower(),
        "access.key": lakefs.access_key_id,
        "secret.key": lakefs.secret_access_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        # lakeFS does not store the values by which Hadoop detects that an object changed while being read.
        "change.detection.mode": "none",
        # The branch has only one writer, so no checks are needed before each file is written.
        "performance.flags": "create,mkdir",
    }
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in values.items():
        conf.set(f"fs.s3a.bucket.{repository}.{key}", value)
    # Spark's catalog opens folders by a configuration of its own, which has no keys, and Hadoop keeps what is opened first
    # for everybody.
    with contextlib.suppress(Exception):  # whoever needs the bucket gets the error
        jvm: Any = spark._jvm
        jvm.org.apache.hadoop.fs.Path(f"s3a://{repository}/").getFileSystem(conf)


def delete_before_overwrite(spark: SparkSession, uri: str) -> None:
    """Delete the table at `uri` if it is at the top of a branch, before Spark overwrites it.

    s3a writes a marker for a folder that has become empty, but lakeFS rejects a marker for the branch itself.  So
    deleting the only table on a branch works, but s3a reports a failure, and Spark would give up.
    """
    where = urlsplit(uri)
    if where.scheme == "s3a" and where.path.strip("/").count("/") == 1:
        jvm: Any = spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri)
        path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
