"""Spark settings of one task: memory, cores, packages, files and any other configuration (decision 0044).

    settings of SQL (`spark.sql.…`, except static ones)    apply to the session of an attempt
    every other setting                                    needs a JVM that was started with it

Settings that Perago must own are rejected by name, so that a task cannot break its own publication.
"""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from perago.declare.diagnostics import BrokenRule
from perago.declare.spec_base import Positive, SpecBase
from perago.protocol.suggestions import did_you_mean

_MEMORY = re.compile(r"([1-9]\d*)([kmgt])", re.IGNORECASE)
_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_LEAST_KIB = 512 * 1024
"""Spark refuses to start with less than 450 MiB, and the JVM keeps a part of its memory for itself."""
_PACKAGE = re.compile(r"[^\s:,]+:[^\s:,]+:[^\s:,]+")
_SECRET = re.compile(r"secret|password|token|access\.?key", re.IGNORECASE)
_MASTER = "spark.master"

_FIELD_OF = {
    "spark.driver.memory": "driver_memory",
    "spark.executor.memory": "executor_memory",
    "spark.executor.cores": "executor_cores",
    "spark.sql.shuffle.partitions": "shuffle_partitions",
    "spark.jars.packages": "packages",
    "spark.jars": "jars",
    "spark.submit.pyFiles": "py_files",
    "spark.archives": "archives",
}
"""Settings that have a field of their own, with its name."""

_FIELD_KEYS = {field: key for key, field in _FIELD_OF.items()}

_COMMITTER = "chooses how files are committed, and Perago publishes them itself; leave it out"
_KEYS = "would put keys into the declaration and on a command line; Perago hands Spark its keys to the lake itself"
_HOST = "is an address of the machine that runs the worker; set it there, in PERAGO_SPARK_CONF"
_SCRATCH = "is a folder of the worker's own, which it removes; leave it out"
_OWNED = (
    (r"spark\.sql\.sources\.(commitProtocolClass|outputCommitterClass)", _COMMITTER),
    (r"spark\.sql\.(parquet|orc)\.output\.committer\.class", _COMMITTER),
    (r"spark\.hadoop\.(mapreduce\.(file)?outputcommitter\.|mapred\.output\.committer).*", _COMMITTER),
    (r"spark\.hadoop\.fs\.s3a\.(.*\.)?committer\..*", _COMMITTER),
    (r"spark\.hadoop\.fs\.(s3a|lakefs)\.(.*\.)?(access\.key|secret\.key|session\.token)", _KEYS),
    (r"spark\.hadoop\.fs\.s3a\.(.*\.)?aws\.credentials\.provider(\..*)?", _KEYS),
    (r"spark\.driver\.(host|bindAddress|port)", _HOST),
    (r"spark\.local\.dir|spark\.sql\.warehouse\.dir", _SCRATCH),
    (
        r"spark\.(remote|api\.mode|connect\..*)",
        "belongs to Spark Connect, and attempts run in a Spark of their own; leave it out",
    ),
    (r"spark\.submit\..*", "belongs to spark-submit, which Perago does not use; leave it out"),
)

STATIC_SQL = frozenset(
    {
        "spark.sql.artifact.copyFromLocalToFs.allowDestLocal",
        "spark.sql.avro.schemaUrlAllowedSchemes",
        "spark.sql.broadcastExchange.maxThreadThreshold",
        "spark.sql.cache.serializer",
        "spark.sql.catalog.spark_catalog.defaultDatabase",
        "spark.sql.catalogImplementation",
        "spark.sql.codegen.cache.maxEntries",
        "spark.sql.codegen.comments",
        "spark.sql.connect.ui.retainedSessions",
        "spark.sql.connect.ui.retainedStatements",
        "spark.sql.debug",
        "spark.sql.defaultUrlStreamHandlerFactory.enabled",
        "spark.sql.event.truncate.length",
        "spark.sql.extensions",
        "spark.sql.extensions.test.loadFromCp",
        "spark.sql.filesourceTableRelationCacheSize",
        "spark.sql.globalTempDatabase",
        "spark.sql.hive.metastore.barrierPrefixes",
        "spark.sql.hive.metastore.jars",
        "spark.sql.hive.metastore.jars.path",
        "spark.sql.hive.metastore.sharedPrefixes",
        "spark.sql.hive.metastore.version",
        "spark.sql.hive.thriftServer.http.sniHostCheckEnabled",
        "spark.sql.hive.thriftServer.singleSession",
        "spark.sql.hive.version",
        "spark.sql.kafka.disallowedOptions",
        "spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties",
        "spark.sql.legacy.sessionInitWithConfigDefaults",
        "spark.sql.metadataCacheTTLSeconds",
        "spark.sql.queryExecutionListeners",
        "spark.sql.reflect.allowList",
        "spark.sql.restrictedMode.enabled",
        "spark.sql.resultQueryStage.maxThreadThreshold",
        "spark.sql.shuffleExchange.maxThreadThreshold",
        "spark.sql.sources.disabledJdbcConnProviderList",
        "spark.sql.sources.schemaStringLengthThreshold",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.sql.streaming.ui.enabled",
        "spark.sql.streaming.ui.enabledCustomMetricList",
        "spark.sql.streaming.ui.retainedProgressUpdates",
        "spark.sql.streaming.ui.retainedQueries",
        "spark.sql.subquery.maxThreadThreshold",
        "spark.sql.ui.retainedExecutions",
        "spark.sql.warehouse.dir",
    }
)
"""The static settings of SQL: a running Spark does not let a session change them.  A test compares them with Spark's."""


class SparkControls(SpecBase):
    """Spark settings of one task. Without a value, the worker's configuration applies.

    Settings of SQL apply to one attempt's session. All others give the slot a JVM that was started with them.
    """

    driver_memory: str | None = None
    """The memory of the driver's JVM, such as `"4g"`. With a local master, this JVM does all the work."""

    executor_memory: str | None = None
    """The memory of each executor on a cluster, such as `"8g"`."""

    executor_cores: Positive | None = None
    """The number of tasks that each executor on a cluster runs at the same time."""

    shuffle_partitions: Positive | None = None
    """The number of partitions after a shuffle (`spark.sql.shuffle.partitions`)."""

    packages: tuple[str, ...] = ()
    """Maven coordinates of packages to fetch, such as `("io.delta:delta-spark_2.13:4.0.0",)`."""

    jars: tuple[str, ...] = ()
    """Jars for the driver and the executors: paths relative to the task's file, or URIs."""

    py_files: tuple[str, ...] = ()
    """Python files (`.py`, `.zip`, `.egg`) for the body and the executors: paths relative to the task's file."""

    archives: tuple[str, ...] = ()
    """Archives that executors unpack, `"env.tar.gz#env"` as `env`: paths relative to the task's file, or URIs."""

    conf: dict[str, str] = Field(default_factory=dict)
    """Any other setting of Spark, such as `{"spark.sql.ansi.enabled": False}`."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @field_validator("driver_memory", "executor_memory")
    @classmethod
    def _is_memory(cls, value: str | None) -> str | None:
        match = _MEMORY.fullmatch(value) if value is not None else None
        if value is not None and match is None:
            raise ValueError("must be a whole number with a unit k, m, g or t, such as '4g' or '1536m'")
        if match is not None and int(match[1]) * _KIB[match[2].lower()] < _LEAST_KIB:
            raise ValueError("must be '512m' or more: Spark does not start with less")
        return value.lower() if value is not None else None

    @field_validator("packages", "jars", "py_files", "archives", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"must be a tuple of texts: ({value!r},)")
        return value

    @field_validator("packages")
    @classmethod
    def _are_coordinates(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, one in enumerate(value):
            if not _PACKAGE.fullmatch(one):
                raise BrokenRule(number, "must be 'group:artifact:version', as on Maven Central", one)
        return value

    @field_validator("jars", "py_files", "archives")
    @classmethod
    def _are_files(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, one in enumerate(value):
            if not one.strip() or "," in one or not one.isprintable():
                raise BrokenRule(number, "must be a path or URI without commas", one)
        return value

    @field_validator("py_files")
    @classmethod
    def _are_python(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, one in enumerate(value):
            if not one.endswith((".py", ".zip", ".egg")):
                raise BrokenRule(number, "must be a .py, .zip or .egg file", one)
            if is_uri(one):
                raise BrokenRule(
                    number, "must be a file of this machine, because the body imports it, too", one
                )
        return value

    @field_validator("conf", mode="before")
    @classmethod
    def _are_texts(cls, value: Any) -> Any:
        """Convert numbers and truth values to Spark's text."""
        if not isinstance(value, dict):
            return value
        texts = {}
        for key, item in value.items():
            if isinstance(item, bool):
                texts[key] = str(item).lower()
            else:
                texts[key] = str(item) if isinstance(item, int | float) else item
        return texts

    @model_validator(mode="after")
    def _conf_is_allowed(self) -> Self:
        for key, value in self.conf.items():
            if rule := _broken_rule(key):
                raise BrokenRule(f"conf[{key!r}]", rule, value)
        return self

    @property
    def master(self) -> str | None:
        """The Spark master of this task, or None if it is the worker's."""
        return self.conf.get(_MASTER)

    @property
    def session_conf(self) -> dict[str, str]:
        """The settings that apply to an attempt's session."""
        return {key: value for key, value in self._all().items() if _is_of_session(key)}

    @property
    def jvm_conf(self) -> dict[str, str]:
        """The settings that need a JVM of their own, without packages and files."""
        return {key: value for key, value in self._all().items() if not _is_of_session(key)}

    def _all(self) -> dict[str, str]:
        fields = ("driver_memory", "executor_memory", "executor_cores", "shuffle_partitions")
        values = {_FIELD_KEYS[field]: getattr(self, field) for field in fields}
        return {**{key: str(value) for key, value in values.items() if value is not None}, **self.conf}


def shown(key: str, value: str) -> str:
    """Return the value of a setting in the form in which it may be shown: Spark redacts the same keys."""
    return "***" if _SECRET.search(key) else value


def is_uri(text: str) -> bool:
    """Return whether a text names a file by URI (`s3a://…`) instead of by path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text) is not None


def _is_of_session(key: str) -> bool:
    return key.startswith("spark.sql.") and key not in STATIC_SQL


def _broken_rule(key: str) -> str | None:
    """Return why a task cannot set this setting, or None if it can."""
    if key in _FIELD_OF:
        return f"has a field: write SparkControls({_FIELD_OF[key]}=…)"
    if not re.fullmatch(r"spark\.\S*[^\s.]", key):
        name = key.removeprefix("--").replace("-", "_")
        if name in SparkControls.model_fields:
            return f"has a field: write SparkControls({name}=…)"
        return f"is not a setting of Spark: they begin with 'spark.'{did_you_mean('spark.' + key, _FIELD_OF)}"
    for pattern, reason in _OWNED:
        if re.fullmatch(pattern, key):
            return reason
    return None
