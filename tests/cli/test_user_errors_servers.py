"""User errors about servers, run as commands: wrong addresses, wrong keys, and other servers that answer instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ConductorServer, LakefsServer
from tests.support.processes.command_errors import (
    CONDUCTOR,
    KEYS,
    LAKEFS,
    NOBODY,
    CommandError,
    check_reported,
    shell_with_a_workflow,
)
from tests.support.processes.commands import Shell
from tests.support.servers.scripted_server import scripted

PUT = ("put", "events", "data")
YES = ("--remote", "--yes")
SLOW = {
    "lakeFS's port is wrong": CommandError(
        ("ls", "events", "--remote"),
        f"lakeFS at {NOBODY}",
        "Connection refused",
        "check LAKECTL_SERVER_ENDPOINT_URL",
        environ=LAKEFS,
    ),
    "lakeFS's port is wrong for a worker": CommandError(
        ("start", "tasks.py"),
        f"no lakeFS at {NOBODY}",
        "Connection refused",
        "check LAKECTL_SERVER_ENDPOINT_URL",
        environ={**LAKEFS, **CONDUCTOR},
    ),
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_with_a_workflow(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW.values(), ids=SLOW)
def test_a_server_that_is_not_there_is_told_by_its_address(case: CommandError, shell: Shell) -> None:
    shell.environ |= case.environ

    check_reported(case, shell.run_here(*case.command), shell.folder)


@pytest.mark.parametrize(
    "command", [("register", "tasks.py", "--yes"), ("submit", "flow", "--yes"), ("runs", "--remote")]
)
def test_a_page_that_answers_to_everything_is_not_taken_for_conductor(
    command: tuple[str, ...], shell: Shell
) -> None:
    with scripted(lambda _: (200, "<html>Welcome</html>")) as page:
        shell.environ["CONDUCTOR_SERVER_URL"] = page.url
        said = shell.run_here(*command)

    remedy = "check CONDUCTOR_SERVER_URL, it ends in /api"
    check_reported(
        CommandError(command, "'<html>Welcome</html>'", "the answer is not Conductor's", remedy),
        said,
        shell.folder,
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [("ls", "events", "--remote"), (*PUT, *YES)])
def test_a_page_that_answers_to_everything_is_not_taken_for_lakefs(
    command: tuple[str, ...], shell: Shell
) -> None:
    with scripted(lambda _: (200, "<html>Welcome</html>")) as page:
        address = page.url.removesuffix("/api")
        shell.environ |= {**LAKEFS, "LAKECTL_SERVER_ENDPOINT_URL": address}
        said = shell.run_here(*command)

    check_reported(
        CommandError(command, address, "is not lakeFS's", "check LAKECTL_SERVER_ENDPOINT_URL"),
        said,
        shell.folder,
    )


@pytest.mark.slow
def test_json_of_another_server_is_not_taken_for_lakefs(shell: Shell) -> None:
    with scripted(lambda _: (200, {"status": "ok"})) as other:
        address = other.url.removesuffix("/api")
        shell.environ |= {**LAKEFS, "LAKECTL_SERVER_ENDPOINT_URL": address}
        said = shell.run_here("ls", "events", "--remote")

    check_reported(
        CommandError((), address, "is not lakeFS", "check LAKECTL_SERVER_ENDPOINT_URL"), said, shell.folder
    )


class TestOnTheServers:
    """Errors about servers that are up."""

    @pytest.fixture
    def real(self, shell: Shell, lakefs_server: LakefsServer, conductor_server: ConductorServer) -> Shell:
        shell.environ |= {
            "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
            "CONDUCTOR_SERVER_URL": conductor_server.url,
        }
        return shell

    @pytest.mark.parametrize("command", [("ls", "events", "--remote"), (*PUT, *YES), ("start", "tasks.py")])
    def test_wrong_keys(self, command: tuple[str, ...], real: Shell, lakefs_server: LakefsServer) -> None:
        real.environ |= KEYS

        said = real.run_here(*command)

        keys = "check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
        check_reported(CommandError(command, "lakeFS", "401", keys), said, real.folder)
        assert KEYS["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"] not in said.err

    @pytest.mark.slow
    @pytest.mark.parametrize("command", [("ls", "events", "--remote"), (*PUT, *YES), ("start", "tasks.py")])
    def test_the_address_of_conductor_for_lakefs(self, command: tuple[str, ...], real: Shell) -> None:
        real.environ["LAKECTL_SERVER_ENDPOINT_URL"] = real.environ["CONDUCTOR_SERVER_URL"].removesuffix(
            "/api"
        )

        said = real.run_here(*command)

        check_reported(
            CommandError(command, "lakeFS", "answered", "check LAKECTL_SERVER_ENDPOINT_URL"),
            said,
            real.folder,
        )

    @pytest.mark.parametrize(
        "command", [("register", "tasks.py", "--yes"), ("start", "tasks.py"), ("runs", "--remote")]
    )
    def test_the_address_of_lakefs_for_conductor(self, command: tuple[str, ...], real: Shell) -> None:
        real.environ["CONDUCTOR_SERVER_URL"] = f"{real.environ['LAKECTL_SERVER_ENDPOINT_URL']}/api"

        said = real.run_here(*command)

        check_reported(
            CommandError(command, "Conductor", "cannot", "check CONDUCTOR_SERVER_URL"), said, real.folder
        )

    @pytest.mark.parametrize(
        "command", [("register", "tasks.py", "--yes"), ("submit", "flow", "--yes"), ("show", "--remote", "x")]
    )
    def test_an_address_of_conductor_without_api(self, command: tuple[str, ...], real: Shell) -> None:
        real.environ["CONDUCTOR_SERVER_URL"] = real.environ["CONDUCTOR_SERVER_URL"].removesuffix("/api")

        said = real.run_here(*command)

        check_reported(
            CommandError(command, "CONDUCTOR_SERVER_URL", "cannot", "it ends in /api"), said, real.folder
        )
