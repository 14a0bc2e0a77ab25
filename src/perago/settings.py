"""Settings: the environment, read once into one frozen object.

The variables for servers have the same names as in lakectl, the lakeFS SDK and the Conductor client.  All others start
with `PERAGO_`.  Defaults and descriptions are in `settings_reference.py`.  An invalid value raises
`RuntimeConfigError`, which names the variable and the values that it takes.  An unknown `PERAGO_*` name only causes a
warning, because another program may read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from perago.errors import RuntimeConfigError
from perago.lakectl_config import read_lakectl_file
from perago.protocol.outcome import WrongInput
from perago.protocol.suggestions import nearest
from perago.settings_reference import ROOT, default_of
from perago.spark_defaults import chosen_master

ServerKind = Literal["embedded", "remote"]
FenceMode = Literal["auto", "hard", "soft"]
TransferMode = Literal["auto", "gateway", "presigned"]
LogFormat = Literal["text", "json"]
SparkSessionKind = Literal["auto", "quick", "full"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATIONS = "a duration such as 30s, 5m, 1h or 2d"
_BYTES = {"": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_OURS = "PERAGO_"
_DEVELOPMENT = "PERAGO_DEV_"
"""The prefix of the environment variables that `dev/servers` reads."""
_IMAGE = "PERAGO_IMAGE"
_IMAGE_CHARS = 300
LAKEFS_NAMES = (
    "LAKECTL_SERVER_ENDPOINT_URL",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
)

CONDUCTOR_KEYS = ("CONDUCTOR_AUTH_KEY", "CONDUCTOR_AUTH_SECRET")


@dataclass(frozen=True, slots=True)
class LakeFSSettings:
    """The address of lakeFS, and the credentials for it."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConductorSettings:
    """The address of Conductor's API, and the credentials if it requires them."""

    url: str
    auth_key: str | None = None
    auth_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """Files for Spark from the command line, as in spark-submit: Python files as paths, the others as URIs."""

    py_files: tuple[Path, ...] = ()
    jars: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `root` contains the embedded servers and, by default, all local state."""

    servers: ServerKind
    """The servers that a command uses, from its option or else from PERAGO_SERVERS."""
    root: Path
    workspace_root: Path
    cache_dir: Path
    cache_bytes: int
    conductor: ConductorSettings | None
    lakefs: LakeFSSettings | None
    fence: FenceMode
    transfer: TransferMode
    wrong_input: WrongInput
    failure_reason_max_length: int
    image: str
    """The container image that processes run in, as commits record it, or an empty string."""
    log_format: LogFormat
    log_root: Path | None
    workspace_gc_interval: float
    workspace_gc_ttl: float
    executor_max_tasks: int
    shutdown_force_kill_after: float | None
    spark_master: str
    """The effective Spark master, whether from PERAGO_SPARK_MASTER, PERAGO_SPARK_CONF or spark-defaults.conf."""
    spark_conf: str
    spark_session: SparkSessionKind
    """The kind of Spark session. Quick sessions suit short work on one machine. With auto, the code that creates the
    session decides."""
    spark_event_log: str | None
    """A folder or a URI."""
    spark_ui: bool
    spark_idle: float
    spark_files: SparkFiles = SparkFiles()
    """The files given with `--py-files`, `--jars` and `--archives`."""
    traces: bool = False
    """True if spans are sent to an OpenTelemetry collector."""


def load_settings(
    environ: Mapping[str, str], *, root: Path | None = None, remote: bool | None = None
) -> Settings:
    """Read the settings from `environ`. `root` and `remote` come from the command line and take precedence.

    With the real servers, lakectl's configuration file supplies lakeFS variables that are not set.
    """
    return _read_settings(_Reader(environ), root=root, remote=remote)


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each `PERAGO_*` variable that is not a setting, with the closest setting if there is one."""
    # Imported here because it documents these settings, and takes their defaults from this module.
    from perago.settings_reference import VARIABLES

    read = _Reader({})
    _read_settings(read, root=None, remote=None)
    known = sorted(name for name in read.names if name.startswith(_OURS))
    warnings = []
    for name in sorted(environ):
        # Some are read by declarations, on import.
        if name.startswith(_OURS) and not name.startswith(_DEVELOPMENT) and name not in VARIABLES:
            # Compare without the common prefix, which would make any two names similar.
            near = nearest(name.removeprefix(_OURS), [one.removeprefix(_OURS) for one in known])
            hint = f"did you mean {_OURS}{near}?" if near else f"there are: {', '.join(known)}"
            warnings.append(f"{name} is not a setting of Perago, and is not read; {hint}")
    return warnings


def shown_address(url: str) -> str:
    """Return an address that is safe to show, without the user name and password that it may contain."""
    head, separator, rest = url.partition("://")
    return f"{head}{separator}{rest.rpartition('@')[2]}" if separator else url.rpartition("@")[2]


def _read_settings(read: _Reader, *, root: Path | None, remote: bool | None) -> Settings:
    kind = cast(ServerKind, read.one_of("PERAGO_SERVERS", ("embedded", "remote")))
    if remote is not None:
        kind = "remote" if remote else "embedded"
    base = (root or read.path("PERAGO_ROOT")).absolute()
    log_root = read.text("PERAGO_LOG_ROOT")
    return Settings(
        servers=kind,
        root=base,
        workspace_root=read.path("PERAGO_WORKSPACE_ROOT", base).absolute(),
        cache_dir=read.path("PERAGO_CACHE_DIR", base).absolute(),
        cache_bytes=read.size("PERAGO_CACHE_BYTES"),
        conductor=_conductor(read),
        lakefs=_lakefs(read, remote=kind == "remote"),
        fence=cast(FenceMode, read.one_of("PERAGO_FENCE", ("auto", "hard", "soft"))),
        transfer=cast(TransferMode, read.one_of("PERAGO_TRANSFER", ("auto", "gateway", "presigned"))),
        wrong_input=cast(WrongInput, read.one_of("PERAGO_WRONG_INPUT", ("failed", "terminal"))),
        failure_reason_max_length=read.count("PERAGO_FAILURE_REASON_MAX_LENGTH", least=40),
        image=_image(read),
        log_format=cast(LogFormat, read.one_of("PERAGO_LOG_FORMAT", ("text", "json"))),
        log_root=Path(log_root).absolute() if log_root else None,
        workspace_gc_interval=read.duration("PERAGO_WORKSPACE_GC_INTERVAL"),
        workspace_gc_ttl=read.duration("PERAGO_WORKSPACE_GC_TTL"),
        executor_max_tasks=read.count("PERAGO_EXECUTOR_MAX_TASKS", least=0),
        shutdown_force_kill_after=(
            read.duration("PERAGO_SHUTDOWN_FORCE_KILL_AFTER")
            if read.text("PERAGO_SHUTDOWN_FORCE_KILL_AFTER")
            else None
        ),
        spark_master=chosen_master(read.environ, default=read.or_default("PERAGO_SPARK_MASTER"))[0],
        spark_conf=read.text("PERAGO_SPARK_CONF") or "",
        spark_session=cast(SparkSessionKind, read.one_of("PERAGO_SPARK_SESSION", ("auto", "quick", "full"))),
        spark_event_log=_folder_or_uri(read.text("PERAGO_SPARK_EVENT_LOG")),
        spark_ui=read.one_of("PERAGO_SPARK_UI", ("0", "1")) == "1",
        spark_idle=read.duration("PERAGO_SPARK_IDLE"),
        traces=_traces(read),
    )


def _traces(read: _Reader) -> bool:
    no_exporter = (read.text("OTEL_TRACES_EXPORTER") or "").lower() == "none"
    off = no_exporter or (read.text("OTEL_SDK_DISABLED") or "").lower() == "true"
    endpoint = read.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or read.text("OTEL_EXPORTER_OTLP_ENDPOINT")
    return endpoint is not None and not off


def _image(read: _Reader) -> str:
    text = read.text(_IMAGE) or ""
    if len(text) > _IMAGE_CHARS or not text.isprintable() or " " in text:
        raise RuntimeConfigError(
            f"{_IMAGE}={text[:40]!r} is not an image name of at most {_IMAGE_CHARS} characters, without spaces"
        )
    return shown_address(text) if "://" in text else text


def _folder_or_uri(text: str | None) -> str | None:
    """Return a URI as it is, and a folder as an absolute path, because bodies may change the current folder."""
    return text if text is None or re.match("[a-z][a-z0-9+.-]*:/", text) else str(Path(text).absolute())


def parse_duration(text: str) -> float:
    """Parse a number with a unit (seconds by default) into seconds. Raises `ValueError` for anything else."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not {DURATIONS}")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def _conductor(read: _Reader) -> ConductorSettings | None:
    url = read.text("CONDUCTOR_SERVER_URL")
    keys = {name: read.text(name) for name in CONDUCTOR_KEYS}
    if url is None:
        return None
    missing = [name for name, value in keys.items() if value is None]
    if len(missing) == 1:
        [given] = set(keys) - set(missing)
        raise RuntimeConfigError(f"Conductor's keys are incomplete: set {missing[0]} (or unset {given})")
    return ConductorSettings(
        _address("CONDUCTOR_SERVER_URL", url, "http://localhost:8080/api"),
        *(keys[name] for name in CONDUCTOR_KEYS),
    )


def _lakefs(read: _Reader, *, remote: bool) -> LakeFSSettings | None:
    values = {name: read.text(name) for name in LAKEFS_NAMES}
    missing = [name for name, value in values.items() if value is None]
    if len(missing) == len(values) and not remote:
        return None
    if missing:
        filed = read_lakectl_file(read.environ)
        values |= {name: filed.get(name) for name in missing}
        missing = [name for name in missing if values[name] is None]
    if len(missing) == len(values):
        return None
    if missing:
        raise RuntimeConfigError(
            f"lakeFS settings are incomplete: set {', '.join(missing)} (or unset all of {', '.join(LAKEFS_NAMES)})"
        )
    endpoint, key, secret = (cast(str, values[name]) for name in LAKEFS_NAMES)
    endpoint = _address(LAKEFS_NAMES[0], endpoint, "http://localhost:8000")
    return LakeFSSettings(endpoint.removesuffix("/api/v1"), key, secret)


def _address(name: str, url: str, example: str) -> str:
    """Return the URL without a trailing slash. Raises `RuntimeConfigError` if it is not an HTTP address.

    The same rule applies to a URL from lakectl's file.
    """
    if not re.match(r"https?://[^/]", url, re.IGNORECASE):
        raise RuntimeConfigError(f"{name}={shown_address(url)!r} is not an address such as {example}")
    return url.rstrip("/")


class _Reader:
    """Reads typed values from the environment. A blank value is treated as unset."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.names: set[str] = set()
        """Every name read so far. After `_read_settings`, these are the names of all settings."""

    def text(self, name: str) -> str | None:
        self.names.add(name)
        return self.environ.get(name, "").strip() or None

    def or_default(self, name: str) -> str:
        return self.text(name) or default_of(name)

    def path(self, name: str, root: Path | None = None) -> Path:
        """Return the path in the variable, or else its default, which may be below `root`."""
        value = self.text(name)
        return Path(value).expanduser() if value else Path(default_of(name).replace(ROOT, str(root)))

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.or_default(name).lower()
        if value not in choices:
            raise RuntimeConfigError(f"{name}={value!r} is not one of {', '.join(choices)}")
        return value

    def count(self, name: str, *, least: int) -> int:
        rule = f"a whole number of at least {least}"
        value: int = self._parse(name, int, rule)
        if value < least:
            raise RuntimeConfigError(f"{name}={value!r} is not {rule}")
        return value

    def duration(self, name: str) -> float:
        return cast(float, self._parse(name, parse_duration, DURATIONS))

    def size(self, name: str) -> int:
        def parse(text: str) -> int:
            amount, unit = cast(Any, re.fullmatch(r"(\d+(?:\.\d+)?)\s*((?:[KMGT]B)?)", text.upper())).groups()
            return int(float(amount) * _BYTES[unit])

        return cast(int, self._parse(name, parse, "a size such as 500MB or 10GB"))

    def _parse(self, name: str, parse: Callable[[str], Any], rule: str) -> Any:
        text = self.or_default(name)
        try:
            return parse(text)
        except (ValueError, AttributeError):
            raise RuntimeConfigError(f"{name}={text!r} is not {rule}") from None
