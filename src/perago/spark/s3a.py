"""Gives Spark access to a lakeFS repository, through Hadoop's s3a and lakeFS's S3 gateway.

The keys are set per repository in the running session, not in its configuration.  The configuration would expose them
on the JVM's command line, and would also send every other `s3a://` address in a body to lakeFS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perago.settings import LakeFSSettings
from perago.spark.config import Packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The Hadoop version that PySpark 4.3 bundles, and the parts of the AWS SDK that it needs. The whole SDK is 600 MB.
S3A_PACKAGES = Packages(
    names=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:s3:2.35.4",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:sts:2.35.4",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
    excludes=("software.amazon.awssdk:bundle",),
)


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
