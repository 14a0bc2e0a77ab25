"""`perago doctor` without servers: settings, the machine, disks, and servers that are not there or are something else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perago.settings import unknown_settings
from tests.cli.conftest import HEAD
from tests.support.faults.disks import no_file_above, spoil
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.processes.command_errors import CONDUCTOR, KEYS, LAKEFS, NOBODY, examine_by_doctor
from tests.support.processes.commands import Shell
from tests.support.servers.scripted_server import scripted

SECRET = KEYS["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"]
TASKS = """
@task(name="count", owner_email="a@b.c")
def count(params: Params) -> Result:
    return Result(rows=1)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    # The person who runs the tests may have a file of lakectl's.
    shell.environ["HOME"] = str(tmp_path)
    return shell


def value_of(shell: Shell, name: str, *arguments: str) -> tuple[str, str]:
    """A setting's value and source."""
    [found] = [one for one in examine_by_doctor(shell, *arguments).data["settings"] if one["name"] == name]
    return found["value"], found["source"]


class TestNothingConfigured:
    """A laptop: the embedded servers do."""

    def test_doctor_without_configuration_says_so_and_succeeds_and_creates_nothing(
        self, shell: Shell
    ) -> None:
        told = examine_by_doctor(shell)

        assert (told.said.code, told.broken()) == (0, [])
        assert told.at("lake")[0]["says"].startswith("embedded: lakeFS is not configured")
        assert told.at("Conductor")[0]["says"].startswith("embedded")
        assert list(shell.folder.iterdir()) == []

    def test_lines_say_the_same_as_the_data(self, shell: Shell) -> None:
        said = shell.run_here("doctor")
        lines = said.out.splitlines()

        assert (said.code, said.err) == (0, "")
        assert all(re.match(r"(ok  |warn|fail|skip)  [^:]+: ", line) for line in lines)
        told = examine_by_doctor(shell)
        assert len(lines) == len(told.data["findings"]) + 1, "and one line for all settings"
        assert lines[-1].startswith("ok    settings: ")
        assert lines[-1].endswith("`perago doctor --settings` lists them")

    def test_settings_are_listed_on_request_and_always_in_the_data(self, shell: Shell) -> None:
        lines = shell.run_here("doctor", "--settings").out.splitlines()
        told = examine_by_doctor(shell)

        assert "ok    setting: PERAGO_FENCE is auto (default)" in lines
        assert len(lines) == len(told.data["settings"]) + len(told.data["findings"])

    def test_problems_come_first(self, shell: Shell) -> None:
        shell.environ |= {"PERAGO_FENCE": "hrad", "PERAGO_WORKSPACE_ROT": "/x", **CONDUCTOR}

        lines = shell.run_here("doctor", "--settings").out.splitlines()

        levels = [line.split()[0] for line in lines]
        problems = sum(level in ("fail", "warn") for level in levels)
        assert problems >= 3
        assert set(levels[:problems]) == {"fail", "warn"}

    def test_doctor_prints_a_table_on_a_terminal(self, shell: Shell) -> None:
        shell.environ["PERAGO_FENCE"] = "hrad"
        said = shell.on_a_terminal("doctor")

        assert said.code == 1, said.out
        assert "what to do" in said.out
        assert "PERAGO_CACHE_DIR" not in said.out
        assert said.out.index("fail") < said.out.index("ok ")
        assert "PERAGO_CACHE_DIR" in shell.on_a_terminal("doctor", "--settings").out

    def test_a_secret_too_short_to_be_masked_is_a_warning_that_does_not_show_it(self, shell: Shell) -> None:
        shell.environ |= {**CONDUCTOR, "CONDUCTOR_AUTH_KEY": "key", "CONDUCTOR_AUTH_SECRET": "q7z"}

        told = examine_by_doctor(shell)

        told.has(
            "setting", "warn", "the secret in CONDUCTOR_AUTH_SECRET is not masked", "use a longer secret"
        )
        assert "q7z" not in told.said.out

    def test_a_repository_of_the_embedded_lake_is_examined_like_any_other(self, shell: Shell) -> None:
        (shell.folder / "data").mkdir()
        (shell.folder / "data" / "a.csv").write_text("x\n")
        missing = examine_by_doctor(shell, "events")
        missing.has("repository events", "fail", "there is no lake", "perago put events FOLDER --create")
        assert shell.run_here("put", "events", "data", "--create").code == 0

        told = examine_by_doctor(shell, "events")

        assert (told.said.code, told.broken()) == (0, [])
        assert "merge" in told.at("permissions on events")[0]["says"]
        assert told.at("fence of events/main")[0]["says"].startswith("hard")
        assert len(shell.run_here("history", "events").out.splitlines()) == 2, "the branch was not touched"
        examine_by_doctor(shell, "evnts").has(
            "repository evnts", "fail", "no repository 'evnts'", "did you mean 'events'?"
        )


class TestSettings:
    """The source of each setting, and all wrong ones at once."""

    def test_every_setting_that_there_is_is_shown(self, shell: Shell) -> None:
        [told] = unknown_settings({"PERAGO_QQQQQQQQ": "1"})
        known = set(told.partition("there are: ")[2].split(", "))

        shown = {one["name"] for one in examine_by_doctor(shell).data["settings"]}

        assert len(known) > 10
        assert known <= shown
        assert set(LAKEFS) | set(CONDUCTOR) | {"CONDUCTOR_AUTH_KEY", "CONDUCTOR_AUTH_SECRET"} <= shown

    def test_each_setting_has_its_source(self, shell: Shell) -> None:
        shell.environ |= {"PERAGO_CACHE_BYTES": "2GB", "PERAGO_ROOT": "elsewhere"}

        assert value_of(shell, "PERAGO_CACHE_BYTES") == ("2GB", "environment")
        assert value_of(shell, "PERAGO_FENCE") == ("auto", "default")
        assert value_of(shell, "PERAGO_ROOT") == ("elsewhere", "environment")

    def test_the_spark_master_is_the_one_that_counts_with_its_source(self, shell: Shell) -> None:
        (shell.folder / "spark-defaults.conf").write_text("spark.master local[2]\n")

        assert value_of(shell, "PERAGO_SPARK_MASTER") == ("local[*]", "default")
        shell.environ["SPARK_CONF_DIR"] = str(shell.folder)
        assert value_of(shell, "PERAGO_SPARK_MASTER") == ("local[2]", "spark-defaults.conf")
        shell.environ["PERAGO_SPARK_CONF"] = "spark.master=local[4]"
        assert value_of(shell, "PERAGO_SPARK_MASTER") == ("local[4]", "PERAGO_SPARK_CONF")
        shell.environ["PERAGO_SPARK_MASTER"] = "local[3]"
        assert value_of(shell, "PERAGO_SPARK_MASTER") == ("local[3]", "environment")
        given = str(shell.folder / "given")
        assert value_of(shell, "PERAGO_ROOT", "--root", given) == (given, "--root")

    def test_secrets_are_masked_wherever_they_come_from(self, shell: Shell) -> None:
        (shell.folder / ".lakectl.yaml").write_text(
            f"server: {{endpoint_url: 'http://me:{SECRET}@127.0.0.1:9'}}\n"
            f"credentials: {{access_key_id: AKIAFILE, secret_access_key: {SECRET}}}\n"
        )
        shell.environ |= {
            **CONDUCTOR,
            "CONDUCTOR_AUTH_KEY": "key",
            "CONDUCTOR_AUTH_SECRET": SECRET,
            "PERAGO_SPARK_CONF": f"spark.password={SECRET}",
        }

        told = examine_by_doctor(shell)
        shown = {one["name"]: (one["value"], one["source"]) for one in told.data["settings"]}

        assert SECRET not in told.said.out
        assert shown["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"] == ("***", "~/.lakectl.yaml")
        assert shown["LAKECTL_SERVER_ENDPOINT_URL"] == ("http://127.0.0.1:9", "~/.lakectl.yaml")
        assert shown["CONDUCTOR_AUTH_SECRET"] == ("***", "environment")
        assert shown["PERAGO_SPARK_CONF"] == ("spark.password=***", "environment")
        assert SECRET not in shell.run_here("doctor").out

    def test_a_misspelt_setting_is_a_warning_with_the_right_name(self, shell: Shell) -> None:
        shell.environ["PERAGO_WORKSPACE_ROT"] = "/somewhere"

        told = examine_by_doctor(shell)

        told.has("setting", "warn", "did you mean PERAGO_WORKSPACE_ROOT?", "correct its name")
        assert told.said.code == 0

    def test_all_that_are_wrong_are_named_at_once(self, shell: Shell) -> None:
        shell.environ |= {
            "PERAGO_FENCE": "hrad",
            "PERAGO_CACHE_BYTES": "lots",
            "PERAGO_SPARK_CONF": "spark.ui.enabled",
            "LAKECTL_SERVER_ENDPOINT_URL": NOBODY,
            **CONDUCTOR,
            "CONDUCTOR_AUTH_KEY": "key",
        }

        told = examine_by_doctor(shell)

        told.has("setting", "fail", "PERAGO_FENCE='hrad' is not one of auto, hard, soft", "PERAGO_FENCE")
        told.has("setting", "fail", "PERAGO_CACHE_BYTES='lots'", "PERAGO_CACHE_BYTES")
        told.has("setting", "fail", "'spark.ui.enabled' is not key=value", "PERAGO_SPARK_CONF")
        told.has("setting", "fail", "lakeFS settings are incomplete", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID")
        told.has("setting", "fail", "Conductor's keys are incomplete", "CONDUCTOR_AUTH_SECRET")
        assert told.at("Java"), "the rest of the examination goes on"

    def test_a_file_of_lakectls_that_cannot_be_read_is_named(self, shell: Shell) -> None:
        (shell.folder / ".lakectl.yaml").write_text("server: [x\n")

        examine_by_doctor(shell).has("setting", "fail", "is not YAML", "LAKECTL_SERVER_ENDPOINT_URL")


class TestTheMachine:
    """Java, disks, and modules that do not load."""

    def test_no_java_at_all(self, shell: Shell) -> None:
        shell.environ.pop("JAVA_HOME", None)
        shell.environ["PATH"] = str(shell.folder)

        examine_by_doctor(shell).has("Java", "fail", "there is none on PATH", "install a Java 17 or later")

    def test_a_java_home_without_java(self, shell: Shell) -> None:
        shell.environ["JAVA_HOME"] = str(shell.folder)

        examine_by_doctor(shell).has(
            "Java", "fail", f"JAVA_HOME={shell.folder} has no bin/java", "set JAVA_HOME"
        )

    @pytest.mark.parametrize(
        ("script", "says"),
        [
            ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "11.0.2"),
            ("echo 'java version \"1.8.0_292\"' >&2", "8.0_292"),
            ("echo 'no such module' >&2; exit 1", "does not run: no such module"),
        ],
    )
    def test_a_java_that_is_too_old_or_broken(self, script: str, says: str, shell: Shell) -> None:
        java = shell.folder / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        shell.environ["JAVA_HOME"] = str(java.parents[1])

        examine_by_doctor(shell).has("Java", "fail", says, "install a Java 17 or later")

    @pytest.mark.parametrize(
        ("master", "level", "says"),
        [
            ("local[2]", "ok", "local[2] is on this machine"),
            ("local[x]", "fail", "the Spark master 'local[x]' is not known"),
            ("spark://127.0.0.1:9", "fail", "does not answer (127.0.0.1:9: Connection refused)"),
            ("k8s://https://127.0.0.1:9", "warn", "does not answer (127.0.0.1:9: Connection refused)"),
            ("yarn", "fail", "needs Hadoop's configuration"),
        ],
    )
    def test_the_spark_master_is_tried(self, shell: Shell, master: str, level: str, says: str) -> None:
        shell.environ |= {"PERAGO_SPARK_MASTER": master}
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
            shell.environ.pop(name, None)

        [found] = examine_by_doctor(shell).at("Spark master")

        assert found["level"] == level
        assert says in found["says"]
        assert (
            level == "ok"
            or "correct PERAGO_SPARK_MASTER, or set PERAGO_SPARK_MASTER=local[*]" in found["remedy"]
        )

    @pytest.mark.parametrize(
        ("environ", "says"),
        [
            ({}, "local[4] is on this machine (spark-defaults.conf)"),
            (
                {"PERAGO_SPARK_CONF": "spark.master=local[3]"},
                "local[3] is on this machine (PERAGO_SPARK_CONF)",
            ),
            (
                {"PERAGO_SPARK_CONF": "spark.master=local[3]", "PERAGO_SPARK_MASTER": "local[2]"},
                "local[2] is on this machine (PERAGO_SPARK_MASTER)",
            ),
            ({"SPARK_CONF_DIR": ""}, "local[*] is on this machine (the default)"),
        ],
    )
    def test_the_spark_master_is_shown_with_the_place_that_won(
        self, shell: Shell, environ: dict[str, str], says: str
    ) -> None:
        (shell.folder / "spark-defaults.conf").write_text("spark.master local[4]\n")
        shell.environ.pop("PERAGO_SPARK_MASTER", None)
        shell.environ |= {"SPARK_CONF_DIR": str(shell.folder), **environ}

        [found] = examine_by_doctor(shell).at("Spark master")

        assert found["says"] == says

    def test_a_root_that_is_a_file(self, shell: Shell) -> None:
        folder = shell.folder / "workspaces"
        folder.mkdir()
        spoil(folder)
        shell.environ["PERAGO_WORKSPACE_ROOT"] = str(folder)

        told = examine_by_doctor(shell)

        told.has("disk: workspaces", "fail", "is a file", "PERAGO_WORKSPACE_ROOT")

    def test_a_disk_that_takes_nothing(self, shell: Shell) -> None:
        with no_file_above(1000):
            told = examine_by_doctor(shell)

        told.has("disk: workspaces", "fail", "cannot be written to: File too large", "make room")
        told.has("disk: temporary", "fail", "cannot be written to", "TMPDIR")

    def test_a_disk_that_takes_nothing_below_a_lake_that_is_there(self, shell: Shell) -> None:
        (shell.folder / "data").mkdir()
        (shell.folder / "data" / "a.csv").write_text("x\n")
        assert shell.run_here("put", "events", "data", "--create").code == 0

        with no_file_above(10):
            told = examine_by_doctor(shell, "events")

        told.has("disk: workspaces", "fail", "cannot be written to: File too large", "make room")
        assert {"disk: workspaces", "disk: temporary"} < set(told.broken())

    def test_tasks_that_do_not_load(self, shell: Shell) -> None:
        (shell.folder / "tasks.py").write_text("import no_such_package\n")

        examine_by_doctor(shell, "--tasks", "tasks.py").has(
            "tasks", "fail", "no_such_package", "perago check tasks.py"
        )


class TestWrongServers:
    """Addresses at which no server answers, or a wrong one."""

    def test_servers_that_do_not_answer_are_failures(self, shell: Shell) -> None:
        shell.environ |= {**LAKEFS, **CONDUCTOR}

        told = examine_by_doctor(shell, "events", "--remote")

        told.has("lakeFS", "fail", f"no lakeFS at {NOBODY}", "check LAKECTL_SERVER_ENDPOINT_URL")
        told.has("Conductor", "fail", f"no Conductor at {NOBODY}/api", "check CONDUCTOR_SERVER_URL")
        assert told.broken() == ["lakeFS", "Conductor"], "what cannot be asked is left out"

    @pytest.mark.parametrize("answer", ["<html>Welcome</html>", {"status": "ok"}])
    def test_something_else_answers(self, answer: object, shell: Shell) -> None:
        with scripted(lambda _: (200, answer)) as page:
            address = page.url.removesuffix("/api")
            shell.environ |= {
                **LAKEFS,
                "LAKECTL_SERVER_ENDPOINT_URL": address,
                "CONDUCTOR_SERVER_URL": page.url,
            }
            told = examine_by_doctor(shell)

        told.has("lakeFS", "fail", f"no lakeFS at {address}", "check LAKECTL_SERVER_ENDPOINT_URL")
        told.has("Conductor", "fail", f"no Conductor at {page.url}", "which ends in /api")

    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["drip", "stall"])
    def test_servers_that_never_finish_an_answer_are_lines_too(self, way: str, shell: Shell) -> None:
        with (
            scripted(lambda _: (200, "x")) as page,
            fault_proxy(page.url.removesuffix("/api"), Fault(way, ".", times=1000)) as proxy,  # type: ignore[arg-type]
        ):
            shell.environ |= {
                **LAKEFS,
                "LAKECTL_SERVER_ENDPOINT_URL": proxy.url,
                "CONDUCTOR_SERVER_URL": f"{proxy.url}/api",
            }
            said = shell.run("doctor", "--json")

        findings = {one["part"]: one for one in json.loads(said.out)["findings"]}
        assert said.code == 1
        assert (findings["lakeFS"]["level"], findings["Conductor"]["level"]) == ("fail", "fail")


def test_tasks_without_a_conductor_are_not_compared(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text(HEAD + TASKS)

    told = examine_by_doctor(shell, "--tasks", "tasks.py")

    assert (told.said.code, told.at("TaskDefs")) == (0, [])
