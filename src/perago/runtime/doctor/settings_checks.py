"""Lists every setting with its value and source, and reports all invalid ones, not just the first.

Each invalid setting is one finding, and the other checks continue as if it were not set.  The value of a secret is
never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perago.errors import RuntimeConfigError
from perago.lakectl_config import DEFAULT_FILE, FILE_SETTING
from perago.runtime.doctor.finding import Finding
from perago.runtime.observe.sanitize import LONGEST_UNMASKED, MASK, short_secrets
from perago.settings import (
    CONDUCTOR_KEYS,
    LAKEFS_NAMES,
    Settings,
    load_settings,
    shown_address,
    unknown_settings,
)
from perago.spark_defaults import chosen_master

PART = "setting"
SERVERS = "PERAGO_SERVERS"
_OURS = "PERAGO_"
_CONDUCTOR_NAMES = ("CONDUCTOR_SERVER_URL", *CONDUCTOR_KEYS)
_FOR_FILES = ("HOME", FILE_SETTING)
_SECRETS = frozenset({LAKEFS_NAMES[2], CONDUCTOR_KEYS[1]})
_ADDRESSES = frozenset({LAKEFS_NAMES[0], _CONDUCTOR_NAMES[0]})
_NOT_SET = "not set"

SHOWN: dict[str, Callable[[Settings], object]] = {
    SERVERS: lambda s: s.servers,
    "PERAGO_ROOT": lambda s: s.root,
    "PERAGO_WORKSPACE_ROOT": lambda s: s.workspace_root,
    "PERAGO_CACHE_DIR": lambda s: s.cache_dir,
    "PERAGO_CACHE_BYTES": lambda s: shown_size(s.cache_bytes),
    "PERAGO_FENCE": lambda s: s.fence,
    "PERAGO_TRANSFER": lambda s: s.transfer,
    "PERAGO_WRONG_INPUT": lambda s: s.wrong_input,
    "PERAGO_FAILURE_REASON_MAX_LENGTH": lambda s: s.failure_reason_max_length,
    "PERAGO_IMAGE": lambda s: s.image or None,
    "PERAGO_LOG_FORMAT": lambda s: s.log_format,
    "PERAGO_LOG_ROOT": lambda s: s.log_root,
    "PERAGO_WORKSPACE_GC_INTERVAL": lambda s: f"{s.workspace_gc_interval:g}s",
    "PERAGO_WORKSPACE_GC_TTL": lambda s: f"{s.workspace_gc_ttl:g}s",
    "PERAGO_EXECUTOR_MAX_TASKS": lambda s: s.executor_max_tasks,
    "PERAGO_SHUTDOWN_FORCE_KILL_AFTER": lambda s: s.shutdown_force_kill_after,
    "PERAGO_SPARK_MASTER": lambda s: s.spark_master,
    "PERAGO_SPARK_CONF": lambda s: s.spark_conf or None,
    "PERAGO_SPARK_SESSION": lambda s: s.spark_session,
    "PERAGO_SPARK_EVENT_LOG": lambda s: s.spark_event_log,
    "PERAGO_SPARK_UI": lambda s: int(s.spark_ui),
    "PERAGO_SPARK_IDLE": lambda s: f"{s.spark_idle:g}s",
    LAKEFS_NAMES[0]: lambda s: s.lakefs and shown_address(s.lakefs.endpoint),
    LAKEFS_NAMES[1]: lambda s: s.lakefs and s.lakefs.access_key_id,
    LAKEFS_NAMES[2]: lambda s: s.lakefs and MASK,
    _CONDUCTOR_NAMES[0]: lambda s: s.conductor and shown_address(s.conductor.url),
    _CONDUCTOR_NAMES[1]: lambda s: s.conductor and s.conductor.auth_key,
    _CONDUCTOR_NAMES[2]: lambda s: MASK if s.conductor and s.conductor.auth_secret else None,
}
"""Functions that return each variable's effective value, in the order of the report."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its effective value, which never contains a secret."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings without the invalid ones, each with its source, and a finding for each invalid one."""

    settings: Settings
    shown: tuple[Setting, ...]
    invalid: tuple[Finding, ...]


def read_settings(
    environ: Mapping[str, str], *, root: Path | None, remote: bool | None = None
) -> SettingsReport:
    """Read the settings, including lakectl's file, as commands on the real servers do.

    `remote` is the choice of servers on the command line.  The result's `servers` are those that commands would use
    with that choice.
    """
    kept = dict(environ)
    invalid = [
        Finding(PART, "warn", says, "correct its name, or unset it") for says in unknown_settings(environ)
    ]
    with_file = True
    for names in _groups(environ):
        error = _diagnostic(environ, names)
        if error is not None:
            invalid.append(Finding(PART, "fail", error, f"correct or unset {', '.join(names)}"))
            for name in names:
                kept.pop(name, None)
            # lakectl's file configures lakeFS even without the variables, and may be the invalid part.
            with_file = with_file and names != LAKEFS_NAMES
    asked = {name: value for name, value in kept.items() if name == SERVERS}
    servers = load_settings(asked, remote=remote).servers
    settings = replace(load_settings(kept, root=root, remote=with_file), servers=servers)
    invalid += [
        Finding(
            PART,
            "warn",
            f"the secret in {name} is not masked in logs: it has at most {LONGEST_UNMASKED} characters, which occur in "
            "most lines by chance",
            "use a longer secret",
        )
        for name in short_secrets(settings)
    ]
    options = {"PERAGO_ROOT": "--root"} if root is not None else {}
    if remote is not None:
        options[SERVERS] = "--remote" if remote else "--local"
    return SettingsReport(settings, tuple(_list_settings(settings, kept, options)), tuple(invalid))


def shown_size(size: float) -> str:
    """Format a number of bytes in a human-readable form, with the units that settings accept."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.4g}{unit}"
        size /= 1024
    return f"{size:.4g}TB"


def _groups(environ: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of variables that can only be validated together."""
    yield from ((name,) for name in sorted(environ) if name.startswith(_OURS))
    yield LAKEFS_NAMES
    yield _CONDUCTOR_NAMES


def _diagnostic(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    wanted = (*names, *_FOR_FILES) if names == LAKEFS_NAMES else names
    alone = {name: environ[name] for name in wanted if name in environ}
    try:
        load_settings(alone, remote=names == LAKEFS_NAMES)
    except RuntimeConfigError as error:
        return str(error)
    return None


def _list_settings(
    settings: Settings, environ: Mapping[str, str], options: Mapping[str, str]
) -> Iterator[Setting]:
    for name, value_of in SHOWN.items():
        value = value_of(settings)
        text = environ.get(name, "").strip()
        if name in options:
            source = options[name]
        elif name == "PERAGO_SPARK_MASTER":
            source = chosen_master(environ, default="")[1]
        elif text:
            source = "environment"
            # Show it as the user wrote it, so that it can be found; but not an address, which may contain a login.
            value = text if name not in _SECRETS | _ADDRESSES else value
        elif value is not None and name in LAKEFS_NAMES:
            source = environ.get(FILE_SETTING, "").strip() or f"~/{DEFAULT_FILE}"
        else:
            source = "default"
        yield Setting(name, _NOT_SET if value is None else str(value), source)
