"""A reference of every environment variable that Perago reads: its default, its meaning, and the commands that use it.

A variable's default and description are written here and nowhere else.  `settings.py` takes the defaults from this
module, `docs/settings.md` is generated from it (`python dev/settings_page.py`), and a test checks that it lists every
variable that the code reads.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT = "<root>"
"""The placeholder for the root in a default value."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable. `unset` describes the behaviour if the variable is not set and has no default."""

    name: str
    meaning: str
    used_by: str
    default: str | None = None
    unset: str = "not set"
    values: str = ""
    """A description of the values that the variable accepts."""
    secret: bool = False

    @property
    def shown_default(self) -> str:
        """The default as the documentation shows it: a value as code, anything else in words."""
        return self.unset if self.default is None else f"`{self.default}`"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of related environment variables, with a title."""

    title: str
    about: str
    variables: tuple[Variable, ...]


_SERVERS = Group(
    "Servers",
    "The names are those that lakectl and the Conductor client use. "
    "Commands use the embedded servers unless `--remote` is given or `PERAGO_SERVERS` is `remote`; `start`, `register`, "
    "`submit` and `fence` use these servers by default ([which servers](commands.md#which-servers)). "
    "`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` apply to Conductor; `SSL_CERT_FILE` or `SSL_CERT_DIR` names "
    "the certificates to trust, for Conductor and for lakeFS's API.",
    (
        Variable(
            "PERAGO_SERVERS",
            "the servers of a command that is given neither `--remote` nor `--local`",
            "every command but `start`, `register`, `submit` and `fence`",
            default="embedded",
            values="`embedded` or `remote`",
        ),
        Variable(
            "CONDUCTOR_SERVER_URL",
            "Conductor's API; it ends in `/api`",
            "what runs or reads workflows, and `sweep`, on the real servers",
            values="`http://…` or `https://…`",
        ),
        Variable(
            "CONDUCTOR_AUTH_KEY",
            "the key id for a Conductor that asks for one; set it together with `CONDUCTOR_AUTH_SECRET`",
            "everything that talks to Conductor",
        ),
        Variable(
            "CONDUCTOR_AUTH_SECRET",
            "the secret that belongs to `CONDUCTOR_AUTH_KEY`",
            "everything that talks to Conductor",
            secret=True,
        ),
        Variable(
            "LAKECTL_SERVER_ENDPOINT_URL",
            "lakeFS's address, with or without `/api/v1`; the S3 gateway must answer there too",
            "everything that uses the real servers",
            values="`http://…` or `https://…`",
        ),
        Variable(
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
            "the lakeFS access key id",
            "everything that talks to lakeFS",
        ),
        Variable(
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
            "the lakeFS secret access key",
            "everything that talks to lakeFS",
            secret=True,
        ),
        Variable(
            "LAKECTL_CONFIG_FILE",
            "lakectl's configuration file; it fills in the `LAKECTL_*` variables that are not set",
            "everything that uses the real servers",
            unset="`.lakectl.yaml` in the home folder",
            values="a file",
        ),
    ),
)

_FOLDERS = Group(
    "Folders",
    f"`{ROOT}` is the value of `PERAGO_ROOT` or of the option `--root`. Relative paths start at the current folder.",
    (
        Variable(
            "PERAGO_ROOT",
            "where local state is kept: the embedded servers, runs, workspaces, the cache; `--root` wins over it",
            "every command",
            default=".perago",
            values="a folder",
        ),
        Variable(
            "PERAGO_WORKSPACE_ROOT",
            "workdirs and the outbox; one worker at a time may use it",
            "`start`, `run`",
            default=f"{ROOT}/workspaces",
            values="a folder on a local disk",
        ),
        Variable(
            "PERAGO_CACHE_DIR",
            "the cache of objects downloaded from lakeFS; any number of processes may share it",
            "everything that downloads from lakeFS",
            default=f"{ROOT}/cache",
            values="a folder",
        ),
        Variable(
            "PERAGO_CACHE_BYTES",
            "how large the cache may grow before the least recently used objects are removed; `0` turns it off",
            "everything that downloads from lakeFS",
            default="10GB",
            values="a size",
        ),
        Variable(
            "PERAGO_LOG_ROOT",
            "a folder in which every process keeps a copy of its log as JSON lines",
            "`start`, `run`",
            unset="no copy",
            values="a folder",
        ),
    ),
)

_WORKER = Group(
    "Worker",
    "[Running workers](running-workers.md) explains what they change.",
    (
        Variable(
            "PERAGO_FENCE",
            "`auto`: hard where lakeFS has the fence and it holds, soft elsewhere; `hard`: refuse to publish without it; "
            "`soft`: do not look for it",
            "`start`, `run`, `put`",
            default="auto",
            values="`auto`, `hard`, `soft`",
        ),
        Variable(
            "PERAGO_TRANSFER",
            "how bytes reach lakeFS's store: `gateway` through lakeFS, `presigned` straight to the store; `auto`: straight "
            "where lakeFS offers it and the store can be reached, except small uploads",
            "`start`, `run`, `put`",
            default="auto",
            values="`auto`, `gateway`, `presigned`",
        ),
        Variable(
            "PERAGO_LOG_FORMAT",
            "log lines for people, or one JSON object per line; `start --log-format` wins over it",
            "`start`, `run`",
            default="text",
            values="`text`, `json`",
        ),
        Variable(
            "PERAGO_EXECUTOR_MAX_TASKS",
            "replace an executor after this many attempts; `0`: never",
            "`start`, `run`",
            default="0",
            values="a whole number",
        ),
        Variable(
            "PERAGO_SHUTDOWN_FORCE_KILL_AFTER",
            "how long running attempts get to finish after SIGTERM or SIGINT before they are killed",
            "`start`, `run`",
            unset="the largest `worker_shutdown_grace_seconds` of the tasks' publish budgets; without one, no limit",
            values="a duration",
        ),
        Variable(
            "PERAGO_OWNER_EMAIL",
            "the owner of tasks whose declaration and module name none (`@task(owner_email=…)`, `__owner_email__`)",
            "every command that loads tasks",
            values="an e-mail address",
        ),
        Variable(
            "PERAGO_IMAGE",
            "the container image, best with its digest. Perago cannot find it out itself; publications record it as "
            "`perago.image`",
            "`start`, `run`, `map`",
            unset="no image is recorded",
            values="a name without spaces, at most 300 characters",
        ),
        Variable(
            "PERAGO_RUN_STEPS",
            "the beginning of the names of the built-in tasks `perago_open` and `perago_publish`. Task names are global "
            "in Conductor: teams that share one, but not their lake, choose different ones",
            "`run`, `check`, `register`, `start`, `perago.workflow`",
            default="perago",
            values="letters, digits and underscores",
        ),
        Variable(
            "PERAGO_WRONG_INPUT",
            "how an attempt ends if its input does not fit the task's contract. `failed`: FAILED, and Conductor retries as "
            "the TaskDef says; `terminal`: FAILED_WITH_TERMINAL_ERROR, without retries. `run` and `map` never retry it",
            "`start`",
            default="failed",
            values="`failed`, `terminal`",
        ),
        Variable(
            "PERAGO_FAILURE_REASON_MAX_LENGTH",
            "longer failure reasons are cut in the middle; Conductor stores no more than 500 characters",
            "`start`, `run`",
            default="500",
            values="a whole number, at least 40",
        ),
        Variable(
            "PERAGO_WORKSPACE_GC_INTERVAL",
            "how often the worker removes workdirs that dead executors left; never more often than every second",
            "`start`, `run`",
            default="1h",
            values="a duration",
        ),
        Variable(
            "PERAGO_WORKSPACE_GC_TTL",
            "how old a workdir of another host must be before it is removed",
            "`start`, `run`",
            default="24h",
            values="a duration",
        ),
    ),
)

_SPARK = Group(
    "Spark",
    "[Spark tasks](spark-tasks.md) has examples.",
    (
        Variable(
            "PERAGO_SPARK_MASTER",
            "the Spark master; if unset, the one in `PERAGO_SPARK_CONF`, or else in `spark-defaults.conf`",
            "Spark tasks, `map`, `start --engine spark`",
            default="local[*]",
            values="a Spark URL",
        ),
        Variable(
            "PERAGO_SPARK_CONF",
            "Spark configuration; it wins over `spark-defaults.conf` and Perago's defaults",
            "Spark tasks, `map`, `start --engine spark`",
            unset="nothing added",
            values="`key=value` pairs, separated by `;`",
        ),
        Variable(
            "PERAGO_SPARK_SESSION",
            "`quick` sessions start faster, `full` ones run long work faster; `auto`: `quick` for `run` and tests, "
            "`full` for `start`",
            "Spark tasks",
            default="auto",
            values="`auto`, `quick`, `full`",
        ),
        Variable(
            "PERAGO_SPARK_EVENT_LOG",
            "where sessions write event logs for Spark's history server; a local folder is made if it does not exist",
            "Spark tasks, `map`, `start --engine spark`",
            unset="no event logs",
            values="a folder, or a URI that Spark can write",
        ),
        Variable(
            "PERAGO_SPARK_UI",
            "`1` switches on the UI of every session; `perago show` and the page link to it while it lives",
            "Spark tasks, `map`, `start --engine spark`",
            default="0",
            values="`0`, `1`",
        ),
        Variable(
            "PERAGO_SPARK_IDLE",
            "how long a session on a cluster keeps executors that no attempt uses; without dynamic allocation, the session "
            "stops after this time",
            "Spark tasks",
            default="2m",
            values="a duration",
        ),
        Variable(
            "PYSPARK_PYTHON",
            "the Python that runs UDFs, rows of a map, and attempts on Spark",
            "Spark tasks, `map`, `start --engine spark`",
            unset="with a local master, the Python that runs Perago",
        ),
        Variable("JAVA_HOME", "the Java that runs Spark", "Spark tasks", unset="`java` on `PATH`"),
        Variable(
            "SPARK_HOME",
            "a Spark installation to use in place of the one inside PySpark",
            "Spark tasks",
            unset="the Spark inside PySpark",
        ),
        Variable(
            "SPARK_CONF_DIR",
            "where `spark-defaults.conf` and `log4j2.properties` are",
            "Spark tasks",
            unset="`$SPARK_HOME/conf`",
        ),
        Variable(
            "XDG_CACHE_HOME",
            "the folder for the archive of Spark's classes, which lets quick sessions start faster",
            "Spark tasks",
            unset="`.cache` in the home folder",
        ),
    ),
)

_METRICS = Group(
    "Metrics and traces over OTLP",
    "`perago start --http` serves metrics for Prometheus without any of these. The other `OTEL_*` variables work as the "
    "OpenTelemetry SDK documents them.",
    (
        Variable(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "send metrics and [traces](observability.md#traces) to this OpenTelemetry collector",
            "`start`; traces also `run`",
            unset="nothing is sent",
        ),
        Variable(
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            "the same, for metrics only; it wins over `OTEL_EXPORTER_OTLP_ENDPOINT`",
            "`start`",
            unset="nothing is sent",
        ),
        Variable(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "the same, for traces only; it wins over `OTEL_EXPORTER_OTLP_ENDPOINT`",
            "`start`, `run`",
            unset="nothing is sent",
        ),
        Variable(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "the protocol; with any other, `start` refuses to send metrics, and no traces are sent",
            "`start`",
            default="http/protobuf",
        ),
        Variable(
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
            "the same, for metrics only; it wins over `OTEL_EXPORTER_OTLP_PROTOCOL`",
            "`start`",
            unset="`OTEL_EXPORTER_OTLP_PROTOCOL`",
        ),
        Variable(
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "the same, for traces only; it wins over `OTEL_EXPORTER_OTLP_PROTOCOL`",
            "`start`, `run`",
            unset="`OTEL_EXPORTER_OTLP_PROTOCOL`",
        ),
        Variable(
            "OTEL_TRACES_EXPORTER",
            "`none` turns traces off, for a collector that should receive metrics only",
            "`start`, `run`",
            default="otlp",
        ),
        Variable(
            "OTEL_SERVICE_NAME",
            "the service name of the metrics and traces",
            "`start`, `run`",
            default="perago",
        ),
        Variable(
            "OTEL_SDK_DISABLED",
            "`true` turns metrics off, those for Prometheus too, and traces",
            "`start`, `run`",
            default="false",
        ),
    ),
)

_LINEAGE = Group(
    "Lineage over OpenLineage",
    "The official client reads these, its other `OPENLINEAGE_*` variables and its files itself. See "
    "[lineage](lineage.md).",
    (
        Variable(
            "OPENLINEAGE_URL",
            "send lineage events to this OpenLineage receiver",
            "`start`, `run`",
            unset="nothing is sent",
        ),
        Variable(
            "OPENLINEAGE_CONFIG",
            "the client's configuration file, which may name any of its transports",
            "`start`, `run`",
            unset="`openlineage.yml` in the current folder or in `~/.openlineage`, if it is there",
        ),
        Variable("OPENLINEAGE_NAMESPACE", "the namespace of the jobs", "`start`, `run`", default="perago"),
        Variable("OPENLINEAGE_DISABLED", "`true` turns lineage off", "`start`, `run`", default="false"),
        Variable(
            "OPENLINEAGE_CLIENT_LOGGING",
            "the level of the client's own log, such as `DEBUG`",
            "`start`, `run`",
            default="ERROR",
        ),
    ),
)

GROUPS = (_SERVERS, _FOLDERS, _WORKER, _SPARK, _METRICS, _LINEAGE)
VARIABLES = {variable.name: variable for group in GROUPS for variable in group.variables}


def default_of(name: str) -> str:
    """Return a variable's default. Raises `LookupError` if it has none."""
    default = VARIABLES[name].default
    if default is None:
        raise LookupError(f"{name} has no default")
    return default
