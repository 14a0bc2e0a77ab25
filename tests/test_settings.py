"""Settings: every variable, its default, and what a wrong value says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from perago.errors import RuntimeConfigError
from perago.settings import (
    LAKEFS_NAMES,
    ConductorSettings,
    LakeFSSettings,
    Settings,
    load_settings,
    parse_duration,
)

LAKEFS = dict(zip(LAKEFS_NAMES, ("http://lake:8000", "AKIA1", "lake-secret"), strict=True))
HERE = Path.cwd()

# variable, text, field, value
VARIABLES: list[tuple[str, str, str, Any]] = [
    ("PERAGO_ROOT", "/r", "root", Path("/r")),
    ("PERAGO_WORKSPACE_ROOT", "/w", "workspace_root", Path("/w")),
    ("PERAGO_CACHE_DIR", "~/c", "cache_dir", Path.home() / "c"),
    ("PERAGO_CACHE_BYTES", "1.5 GB", "cache_bytes", 1536 * 1024**2),
    ("PERAGO_CACHE_BYTES", "0", "cache_bytes", 0),
    ("PERAGO_FENCE", "hard", "fence", "hard"),
    ("PERAGO_FENCE", "SOFT", "fence", "soft"),
    ("PERAGO_FAILURE_REASON_MAX_LENGTH", "1000", "failure_reason_max_length", 1000),
    ("PERAGO_LOG_FORMAT", "json", "log_format", "json"),
    ("PERAGO_LOG_ROOT", "logs", "log_root", HERE / "logs"),
    ("PERAGO_WORKSPACE_GC_INTERVAL", "5m", "workspace_gc_interval", 300.0),
    ("PERAGO_WORKSPACE_GC_TTL", "2d", "workspace_gc_ttl", 172_800.0),
    ("PERAGO_EXECUTOR_MAX_TASKS", "10", "executor_max_tasks", 10),
    ("PERAGO_SHUTDOWN_FORCE_KILL_AFTER", "90", "shutdown_force_kill_after", 90.0),
    ("PERAGO_SPARK_MASTER", "spark://m:7077", "spark_master", "spark://m:7077"),
    ("PERAGO_SPARK_CONF", "spark.x=1", "spark_conf", "spark.x=1"),
    ("PERAGO_SPARK_SESSION", "quick", "spark_session", "quick"),
    ("CONDUCTOR_SERVER_URL", "http://c/api/", "conductor", ConductorSettings("http://c/api")),
]


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(RuntimeConfigError) as caught:
        load_settings(environ)
    return str(caught.value)


class TestDefaults:
    def test_an_empty_environment_means_the_embedded_servers_below_the_current_folder(self) -> None:
        assert load_settings({}) == Settings(
            root=HERE / ".perago",
            workspace_root=HERE / ".perago" / "workspaces",
            cache_dir=HERE / ".perago" / "cache",
            cache_bytes=10 * 1024**3,
            conductor=None,
            lakefs=None,
            fence="auto",
            failure_reason_max_length=500,
            log_format="text",
            log_root=None,
            workspace_gc_interval=3600.0,
            workspace_gc_ttl=86_400.0,
            executor_max_tasks=0,
            shutdown_force_kill_after=None,
            spark_master="local[*]",
            spark_conf="",
            spark_session="auto",
        )

    def test_the_root_of_the_command_line_wins_and_takes_the_folders_along(self) -> None:
        found = load_settings({"PERAGO_ROOT": "/said"}, root=Path("/given"))
        assert (found.root, found.workspace_root, found.cache_dir) == (
            Path("/given"),
            Path("/given/workspaces"),
            Path("/given/cache"),
        )

    def test_folders_are_absolute_because_bodies_may_change_the_current_one(self) -> None:
        found = load_settings({"PERAGO_ROOT": "r", "PERAGO_WORKSPACE_ROOT": "w", "PERAGO_CACHE_DIR": "c"})
        assert found.root.is_absolute()
        assert found.workspace_root.is_absolute()
        assert found.cache_dir.is_absolute()


class TestVariables:
    @pytest.mark.parametrize(("name", "text", "field", "value"), VARIABLES)
    def test_each_is_read(self, name: str, text: str, field: str, value: Any) -> None:
        assert getattr(load_settings({name: text}), field) == value
        assert getattr(load_settings({}), field) != value

    @pytest.mark.parametrize("name", sorted({row[0] for row in VARIABLES}))
    def test_a_blank_one_counts_as_unset(self, name: str) -> None:
        assert load_settings({name: "  "}) == load_settings({})

    def test_every_setting_has_a_variable_here(self) -> None:
        covered = {row[2] for row in VARIABLES} | {"lakefs"}
        assert covered == {field.name for field in dataclasses.fields(Settings)}

    @pytest.mark.parametrize(
        ("name", "text", "rule"),
        [
            ("PERAGO_CACHE_BYTES", "10 gigs", "a size such as"),
            ("PERAGO_CACHE_BYTES", "-1", "a size such as"),
            ("PERAGO_FENCE", "harder", "auto, hard, soft"),
            ("PERAGO_FAILURE_REASON_MAX_LENGTH", "many", "a whole number of at least 40"),
            ("PERAGO_FAILURE_REASON_MAX_LENGTH", "10", "a whole number of at least 40"),
            ("PERAGO_LOG_FORMAT", "xml", "text, json"),
            ("PERAGO_WORKSPACE_GC_INTERVAL", "1w", "a duration such as"),
            ("PERAGO_WORKSPACE_GC_TTL", "soon", "a duration such as"),
            ("PERAGO_EXECUTOR_MAX_TASKS", "-1", "a whole number of at least 0"),
            ("PERAGO_EXECUTOR_MAX_TASKS", "1.5", "a whole number"),
            ("PERAGO_SHUTDOWN_FORCE_KILL_AFTER", "never", "a duration such as"),
        ],
    )
    def test_a_wrong_value_names_the_variable_the_value_and_the_rule(
        self, name: str, text: str, rule: str
    ) -> None:
        said = refusal({name: text})
        assert said.startswith(f"{name}=")
        assert text in said
        assert rule in said


class TestServers:
    def test_lakefs_takes_the_names_that_lakectl_uses(self) -> None:
        found = load_settings(LAKEFS).lakefs
        assert found == LakeFSSettings("http://lake:8000", "AKIA1", "lake-secret")

    @pytest.mark.parametrize("end", ["", "/", "/api/v1", "/api/v1/"])
    def test_lakectls_endpoint_is_taken_with_and_without_its_path(self, end: str) -> None:
        environ = {**LAKEFS, LAKEFS_NAMES[0]: f"http://lake:8000{end}"}
        found = load_settings(environ).lakefs
        assert found is not None
        assert found.endpoint == "http://lake:8000"

    @pytest.mark.parametrize("missing", LAKEFS_NAMES)
    def test_an_incomplete_lakefs_names_what_is_missing(self, missing: str) -> None:
        environ = {name: value for name, value in LAKEFS.items() if name != missing}
        said = refusal(environ)
        assert f"set {missing} " in said
        assert "lake-secret" not in said

    def test_conductors_keys_come_with_it(self) -> None:
        keys = {"CONDUCTOR_AUTH_KEY": "key", "CONDUCTOR_AUTH_SECRET": "conductor-secret"}
        found = load_settings({"CONDUCTOR_SERVER_URL": "http://c/api", **keys}).conductor
        assert found == ConductorSettings("http://c/api", "key", "conductor-secret")
        assert load_settings(keys).conductor is None

    def test_no_secret_is_in_what_settings_look_like(self) -> None:
        environ = {
            **LAKEFS,
            "CONDUCTOR_SERVER_URL": "http://c/api",
            "CONDUCTOR_AUTH_KEY": "key",
            "CONDUCTOR_AUTH_SECRET": "conductor-secret",
        }
        shown = repr(load_settings(environ))
        assert "http://lake:8000" in shown
        assert not re.search("lake-secret|conductor-secret", shown)

    def test_settings_never_change(self) -> None:
        found = load_settings(LAKEFS)
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.fence = "soft"  # type: ignore[misc]


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("30", 30), ("30s", 30), ("1.5m", 90), ("1H", 3600), (" 2d ", 172_800), ("0", 0)],
    )
    def test_a_number_with_a_unit_is_seconds(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize("text", ["", "h", "1 h", "-1s", "1h30m", "1w", "٣s", "1e3"])
    def test_anything_else_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(ValueError, match="30s, 5m, 1h or 2d"):
            parse_duration(text)
