"""The files of examples/deploy are what docs/production.md shows, and everything that they name exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from perago.cli import app
from perago.runtime.observe.health import PARTS, HealthState
from perago.runtime.observe.metrics import ENDINGS, open_metrics
from perago.runtime.worker.lifecycle import KILLED_SECONDS
from perago.runtime.worker.plan import LEAST_SENDING_SECONDS
from perago.settings import parse_duration
from perago.settings_reference import VARIABLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
PAGE = (ROOT / "docs" / "production.md").read_text()
UNIT = (DEPLOY / "perago-worker.service").read_text()
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
ENDING_SECONDS = 10
"""For the worker itself to end, after its last result was sent: its metrics, its threads, Python."""


def section(name: str) -> dict[str, list[str]]:
    """A section of the unit; a key may stand there more than once."""
    found: dict[str, list[str]] = {}
    for line in UNIT.partition(f"[{name}]\n")[2].partition("\n[")[0].splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def of_kind(kind: str) -> dict[str, Any]:
    return next(one for one in MANIFEST if one["kind"] == kind)


POD = of_kind("Deployment")["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
CMD: list[str] = json.loads(re.findall(r"^CMD (.*)$", CONTAINERFILE, re.MULTILINE)[0])
SERVICE = section("Service")
COMMANDS = {
    "systemd": shlex.split(SERVICE["ExecStart"][0])[1:],
    "container": CMD,
    "kubernetes": [str(word) for word in CONTAINER["args"]],
}


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_shows_every_file_whole() -> None:
    shown = dict(re.findall(r"`examples/deploy/([\w.-]+)`:\n\n```\w+\n(.*?)```\n", PAGE, re.DOTALL))

    assert shown == {file.name: file.read_text() for file in DEPLOY.iterdir()}


@pytest.mark.parametrize("file", ["page", *sorted(one.name for one in DEPLOY.iterdir())])
def test_every_setting_that_is_named_exists(file: str) -> None:
    text = PAGE if file == "page" else (DEPLOY / file).read_text()

    named = set(re.findall(r"\b(?:PERAGO|CONDUCTOR|LAKECTL|OTEL)_[A-Z_]*[A-Z]\b", text))

    assert named <= set(VARIABLES)


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", COMMANDS)
def test_each_deployment_runs_a_valid_perago_command(where: str) -> None:
    name, *arguments = COMMANDS[where]
    command = get_command(app).commands[name]  # type: ignore[attr-defined]

    context = command.make_context(name, list(arguments))

    assert context.params["targets"] == ["app.tasks"]
    assert context.params["slots"] == 4
    assert context.params["http"].endswith(":9464")


def test_the_container_and_the_manifest_serve_and_scrape_one_port() -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert re.findall(r"^EXPOSE (\d+)$", CONTAINERFILE, re.MULTILINE) == ["9464"]
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": 9464}]
    assert (labels["prometheus.io/port"], labels["prometheus.io/path"]) == ("9464", "/metrics")
    # Probes come from outside of the container.
    assert COMMANDS["kubernetes"][-1] == COMMANDS["container"][-1] == "0.0.0.0:9464"
    assert {CONTAINER[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} == {"http"}


def test_the_pod_is_the_user_of_the_image_and_may_write_where_the_worker_does() -> None:
    mounted = [one["mountPath"] for one in CONTAINER["volumeMounts"]]

    assert (
        f"USER {POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}" in CONTAINERFILE
    )
    assert POD["securityContext"]["fsGroup"] == POD["securityContext"]["runAsGroup"]
    assert "PERAGO_ROOT=/var/lib/perago" in CONTAINERFILE
    assert mounted == ["/var/lib/perago", "/tmp"]


# --- time to finish --------------------------------------------------------------------------------------------------


def needed(kill_after: str) -> float:
    """Return how long a worker without publish budgets may take to stop."""
    return parse_duration(kill_after) + max(LEAST_SENDING_SECONDS, KILLED_SECONDS) + ENDING_SECONDS


def test_kubernetes_waits_until_a_drain_is_over() -> None:
    kill_after = of_kind("ConfigMap")["data"]["PERAGO_SHUTDOWN_FORCE_KILL_AFTER"]

    assert POD["terminationGracePeriodSeconds"] >= needed(kill_after)


def test_systemd_waits_until_a_drain_is_over() -> None:
    said = dict(one.split("=", 1) for one in SERVICE["Environment"])
    [stop] = SERVICE["TimeoutStopSec"]

    assert float(stop.removesuffix("min")) * 60 >= needed(said["PERAGO_SHUTDOWN_FORCE_KILL_AFTER"])


# --- the unit --------------------------------------------------------------------------------------------------------


def test_only_the_supervisor_gets_the_signal_and_an_executor_out_of_memory_does_not_stop_it() -> None:
    assert (SERVICE["KillMode"], SERVICE["OOMPolicy"], SERVICE["Restart"]) == (
        ["mixed"],
        ["continue"],
        ["always"],
    )


def test_the_units_folders_are_those_that_it_may_write() -> None:
    said = dict(one.split("=", 1) for one in SERVICE["Environment"])

    assert said["PERAGO_ROOT"] == f"/var/lib/{SERVICE['StateDirectory'][0]}"
    assert said["PERAGO_CACHE_DIR"] == f"/var/cache/{SERVICE['CacheDirectory'][0]}"


# Where there is no systemd, nothing is said about the unit; a skip would fail CI.
if shutil.which("systemd-analyze"):

    def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
        unit = tmp_path / "perago-worker.service"
        unit.write_text(UNIT.replace("/opt/perago/.venv/bin/perago", shutil.which("true") or ""))

        done = subprocess.run(
            ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
        )

        assert (done.returncode, done.stderr) == (0, "")


def test_the_units_environment_file_has_a_value_in_every_line() -> None:
    text = (DEPLOY / "worker.env").read_text()
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(f"[worker]\n{text}")

    assert all(parsed["worker"].values())
    assert len(parsed["worker"]) == len(text.splitlines())


# --- alerts ----------------------------------------------------------------------------------------------------------


def exposed() -> str:
    """Return the text of /metrics after everything has been counted."""
    with open_metrics({}, HealthState(["t"]), worker_id="w", prometheus=True) as metrics:
        for ending in ENDINGS:
            metrics.attempt_ended("t", ending)
        for level in ("hard", "soft"):
            metrics.published("t", level)
        metrics.steps_took("t", {"body": 1.0})
        metrics.bytes_moved("t", downloaded=1, uploaded=1, saved=1)
        metrics.lease_failed("t")
        metrics.send_failed("t")
        metrics.outbox_failed("t")
        metrics.executor_restarted()
        metrics.swept("workdirs", 1)
        return metrics.exposition().decode()


EXPOSED = exposed()


def test_every_metric_with_its_labels_is_one_that_the_worker_exposes() -> None:
    chosen = [found for rule in RULES for found in re.findall(r"(perago_\w+)(?:\{([^}]*)\})?", rule["expr"])]
    values = {"outcome": set(ENDINGS), "fence": {"hard", "soft"}, "what": set(PARTS)}

    assert len({name for name, _ in chosen}) >= 7
    for name, labels in chosen:
        assert re.search(rf"^{name}[{{ ]", EXPOSED, re.MULTILINE), f"{name} is not exposed"
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', labels):
            assert set(value.split("|")) <= values[label]
            assert re.search(rf'^{name}{{[^}}]*\b{label}="', EXPOSED, re.MULTILINE)


def test_every_label_that_a_rule_groups_by_or_shows_is_there() -> None:
    # Prometheus adds the instance.
    for rule in RULES:
        named = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        kept = [name for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in group.split(", ")]
        metric = re.findall(r"perago_\w+", rule["expr"])[0]
        for label in {*named, *kept} - {"instance"}:
            assert re.search(rf'^{metric}{{[^}}]*\b{label}="', EXPOSED, re.MULTILINE), (metric, label)
        assert not kept or set(named) <= set(kept), f"{rule['alert']} shows a label that it sums away"


def test_every_rule_says_how_urgent_it_is_and_what_happened() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 12
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["expr"].count("(") == rule["expr"].count(")")
