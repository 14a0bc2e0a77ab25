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
    shown_address,
    unknown_settings,
)

LAKEFS = dict(zip(LAKEFS_NAMES, ("http://lake:8000", "AKIA1", "lake-secret"), strict=True))
HERE = Path.cwd()

# variable, text, field, value
VARIABLES: list[tuple[str, str, str, Any]] = [
    ("PERAGO_SERVERS", "remote", "servers", "remote"),
    ("PERAGO_ROOT", "/r", "root", Path("/r")),
    ("PERAGO_WORKSPACE_ROOT", "/w", "workspace_root", Path("/w")),
    ("PERAGO_CACHE_DIR", "~/c", "cache_dir", Path.home() / "c"),
    ("PERAGO_CACHE_BYTES", "1.5 GB", "cache_bytes", 1536 * 1024**2),
    ("PERAGO_CACHE_BYTES", "0", "cache_bytes", 0),
    ("PERAGO_FENCE", "hard", "fence", "hard"),
    ("PERAGO_FENCE", "SOFT", "fence", "soft"),
    ("PERAGO_TRANSFER", "presigned", "transfer", "presigned"),
    ("PERAGO_WRONG_INPUT", "terminal", "wrong_input", "terminal"),
    ("PERAGO_IMAGE", "registry:5000/songs:1@sha256:0a", "image", "registry:5000/songs:1@sha256:0a"),
    ("PERAGO_IMAGE", "https://me:hush@registry/songs", "image", "https://registry/songs"),
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
    ("PERAGO_SPARK_EVENT_LOG", "hdfs://logs/spark", "spark_event_log", "hdfs://logs/spark"),
    ("PERAGO_SPARK_EVENT_LOG", "file:///logs", "spark_event_log", "file:///logs"),
    ("PERAGO_SPARK_EVENT_LOG", "/logs", "spark_event_log", "/logs"),
    ("PERAGO_SPARK_UI", "1", "spark_ui", True),
    ("PERAGO_SPARK_IDLE", "90s", "spark_idle", 90.0),
    ("CONDUCTOR_SERVER_URL", "http://c/api/", "conductor", ConductorSettings("http://c/api")),
]


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(RuntimeConfigError) as caught:
        load_settings(environ)
    return str(caught.value)


class TestDefaults:
    def test_an_empty_environment_means_the_embedded_servers_below_the_current_folder(self) -> None:
        assert load_settings({}) == Settings(
            servers="embedded",
            root=HERE / ".perago",
            workspace_root=HERE / ".perago" / "workspaces",
            cache_dir=HERE / ".perago" / "cache",
            cache_bytes=10 * 1024**3,
            conductor=None,
            lakefs=None,
            fence="auto",
            transfer="auto",
            wrong_input="failed",
            failure_reason_max_length=500,
            image="",
            log_format="text",
            log_root=None,
            workspace_gc_interval=3600.0,
            workspace_gc_ttl=86_400.0,
            executor_max_tasks=0,
            shutdown_force_kill_after=None,
            spark_master="local[*]",
            spark_conf="",
            spark_session="auto",
            spark_event_log=None,
            spark_ui=False,
            spark_idle=120.0,
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

    @pytest.mark.parametrize(
        ("said", "option", "servers"),
        [
            ("", None, "embedded"),
            ("remote", None, "remote"),
            ("embedded", None, "embedded"),
            ("remote", False, "embedded"),
            ("", True, "remote"),
        ],
    )
    def test_the_command_line_chooses_the_servers_then_the_variable(
        self, said: str, option: bool | None, servers: str
    ) -> None:
        assert load_settings({"PERAGO_SERVERS": said}, remote=option).servers == servers


class TestVariables:
    @pytest.mark.parametrize(("name", "text", "field", "value"), VARIABLES)
    def test_each_variable_is_read(self, name: str, text: str, field: str, value: Any) -> None:
        assert getattr(load_settings({name: text}), field) == value
        assert getattr(load_settings({}), field) != value

    @pytest.mark.parametrize("name", sorted({row[0] for row in VARIABLES}))
    def test_a_blank_variable_counts_as_unset(self, name: str) -> None:
        assert load_settings({name: "  "}) == load_settings({})

    def test_every_setting_has_a_variable_here(self) -> None:
        covered = {row[2] for row in VARIABLES} | {"lakefs", "spark_files", "traces"}
        assert covered == {field.name for field in dataclasses.fields(Settings)}

    @pytest.mark.parametrize(
        ("name", "text", "rule"),
        [
            ("PERAGO_CACHE_BYTES", "10 gigs", "a size such as"),
            ("PERAGO_CACHE_BYTES", "-1", "a size such as"),
            ("PERAGO_FENCE", "harder", "auto, hard, soft"),
            ("PERAGO_TRANSFER", "direct", "auto, gateway, presigned"),
            ("PERAGO_WRONG_INPUT", "retry", "failed, terminal"),
            ("PERAGO_FAILURE_REASON_MAX_LENGTH", "many", "a whole number of at least 40"),
            ("PERAGO_FAILURE_REASON_MAX_LENGTH", "10", "a whole number of at least 40"),
            ("PERAGO_IMAGE", "two words", "at most 300 characters, without spaces"),
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

    def test_no_secret_is_in_the_repr_of_settings(self) -> None:
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


class TestLakectlFile:
    TEXT = "credentials:\n  access_key_id: 0123\n  secret_access_key: filed-secret\nserver:\n  endpoint_url: http://f/api/v1\n"

    @pytest.fixture
    def home(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / ".lakectl.yaml").write_text(self.TEXT)
        return {"HOME": str(tmp_path)}

    def test_the_lakectl_file_is_read_for_a_remote_command_if_no_variable_is_set(
        self, home: dict[str, str]
    ) -> None:
        found = load_settings(home, remote=True).lakefs

        assert found == LakeFSSettings("http://f", "0123", "filed-secret")

    def test_a_lakectl_file_alone_makes_no_command_remote(self, home: dict[str, str]) -> None:
        assert load_settings(home).lakefs is None

    def test_variables_win_and_the_file_fills_in_the_rest(self, home: dict[str, str]) -> None:
        found = load_settings({**home, LAKEFS_NAMES[0]: "http://said"}).lakefs

        assert found == LakeFSSettings("http://said", "0123", "filed-secret")

    def test_another_lakectl_file_may_be_named_as_for_lakectl(
        self, home: dict[str, str], tmp_path: Path
    ) -> None:
        other = tmp_path / "other.yaml"
        other.write_text(self.TEXT.replace("http://f", "http://other"))

        found = load_settings({**home, "LAKECTL_CONFIG_FILE": str(other)}, remote=True).lakefs

        assert found is not None
        assert found.endpoint == "http://other"

    @pytest.mark.parametrize("text", ["", "server: x", "[1]", "server:\n  endpoint_url: [1]"])
    def test_a_file_that_says_nothing_is_none(self, home: dict[str, str], tmp_path: Path, text: str) -> None:
        (tmp_path / ".lakectl.yaml").write_text(text)

        assert load_settings(home, remote=True).lakefs is None
        assert load_settings({"HOME": str(tmp_path / "nowhere")}, remote=True).lakefs is None

    def test_a_file_that_is_half_full_says_what_is_missing(
        self, home: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / ".lakectl.yaml").write_text("server:\n  endpoint_url: http://f\n")

        with pytest.raises(RuntimeConfigError, match="set LAKECTL_CREDENTIALS_ACCESS_KEY_ID"):
            load_settings(home, remote=True)

    def test_a_broken_file_is_named_without_its_secret(self, home: dict[str, str], tmp_path: Path) -> None:
        file = tmp_path / ".lakectl.yaml"
        file.write_text("credentials:\n  secret_access_key: 'filed-secret\n")

        with pytest.raises(RuntimeConfigError) as caught:
            load_settings(home, remote=True)

        assert f"{file} is not YAML, line " in str(caught.value)
        assert "filed-secret" not in str(caught.value)


class TestUnknownNames:
    def test_a_misspelt_setting_is_reported_with_a_suggestion(self) -> None:
        assert unknown_settings({"PERAGO_FENSE": "hard", "PERAGO_FENCE": "hard"}) == [
            "PERAGO_FENSE is not a setting of Perago, and is not read; did you mean PERAGO_FENCE?"
        ]

    def test_an_unknown_setting_without_a_similar_one_is_reported_with_all_names(self) -> None:
        (told,) = unknown_settings({"PERAGO_XYZZY": "1"})

        assert "PERAGO_XYZZY is not a setting" in told
        assert "PERAGO_CACHE_BYTES, PERAGO_CACHE_DIR" in told

    def test_every_setting_and_other_people_s_names_are_known(self) -> None:
        names = {name for name, *_ in VARIABLES} | {*LAKEFS_NAMES, "PERAGO_DEV_CACHE", "HOME", "PERAGOO"}

        assert unknown_settings(dict.fromkeys(names, "1")) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:1/api", "http://h:1/api"),
        ("https://me:p%40ss@h/api", "https://h/api"),
        ("me:word@h", "h"),
    ],
)
def test_an_address_is_shown_without_who_and_password(url: str, shown: str) -> None:
    assert shown_address(url) == shown


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


def test_variables_that_declarations_read_are_not_called_unknown() -> None:
    assert unknown_settings({"PERAGO_OWNER_EMAIL": "a@b.c", "PERAGO_RUN_STEPS": "team_a"}) == []


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_traces_are_on_if_there_is_a_collector_for_them(environ: dict[str, str], on: bool) -> None:
    assert load_settings(environ).traces is on
