"""Access to the page: without a token from this machine, with the token from others; and the headers of every answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perago.backend import Embedded
from perago.cli.ui import serving_page
from perago.errors import RuntimeConfigError, install_extra
from perago.settings import load_settings
from perago.ui.auth import is_loopback
from tests.support.processes.commands import Shell
from tests.support.servers.served_page import served_page


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:8642", "[::1]:8642", "127.0.0.1"])
def test_this_machine_may_read_the_page(tmp_path: Path, host: str) -> None:
    with served_page(tmp_path) as http:
        assert http.get("/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8642", "127.0.0.1.evil.example", "", "localhost.evil.example", "["]
)
def test_a_foreign_name_that_points_here_is_refused(tmp_path: Path, host: str) -> None:
    with served_page(tmp_path) as http:
        assert http.get("/runs", headers={"Host": host}).status_code == 421


def test_another_site_may_not_ask_in_the_background(tmp_path: Path) -> None:
    with served_page(tmp_path) as http:
        cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert http.get("/runs", headers=cross).status_code == 403
        cross["Sec-Fetch-Mode"] = "navigate"
        assert http.get("/runs", headers=cross).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent(tmp_path: Path, method: str) -> None:
    with served_page(tmp_path) as http:
        assert http.request(method, "/runs").status_code == 405


@pytest.mark.parametrize("path", ["/runs", "/static/page.js", "/nothing", "/run?id=no", "/history?repo=no"])
def test_every_answer_comes_with_the_policy(tmp_path: Path, path: str) -> None:
    with served_page(tmp_path) as http:
        headers = http.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


class TestToken:
    def test_without_it_nothing_is_shown(self, tmp_path: Path) -> None:
        with served_page(tmp_path, token="s3cret") as http:
            for path in ("/runs", "/static/page.js", "/live/runs", "/?token=wrong", "/?token="):
                answer = http.get(path)
                assert answer.status_code == 403
                assert "s3cret" not in answer.text
            assert http.get("/runs", headers={"Authorization": "Bearer wrong"}).status_code == 403
            assert (
                http.get("/runs", headers={"Cookie": f"perago-ui-{http.base_url.port}=wrong"}).status_code
                == 403
            )

    def test_a_valid_token_becomes_a_cookie_and_leaves_the_address(self, tmp_path: Path) -> None:
        with served_page(tmp_path, token="s3cret") as http:
            answer = http.get("/run?id=a%26b&token=s3cret")
            assert (answer.status_code, answer.headers["location"]) == (303, "?id=a%26b")
            cookie = answer.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=lax" in cookie
            assert http.get("/runs").status_code == 200

    def test_a_program_gives_it_as_a_bearer_token(self, tmp_path: Path) -> None:
        with served_page(tmp_path, token="s3cret") as http:
            assert http.get("/runs", headers={"Authorization": "Bearer s3cret"}).status_code == 200

    def test_an_address_beyond_this_machine_has_one_and_loopback_has_none(self, tmp_path: Path) -> None:
        servers = Embedded(load_settings({}, root=tmp_path))
        with serving_page(servers, host="0.0.0.0", port=0) as served:
            assert served.token is not None
            assert len(served.token) > 30
            assert served.address("/").endswith(f"/?token={served.token}")
        with serving_page(servers, port=0) as served:
            assert served.token is None

    @pytest.mark.parametrize(
        ("host", "own"),
        [
            *[(name, True) for name in ("127.0.0.1", "127.0.0.9", "localhost", "::1", "[::1]")],
            *[(name, False) for name in ("0.0.0.0", "::", "192.0.2.7", "example.com", "")],
        ],
    )
    def test_loopback_addresses_count_as_this_machine(self, host: str, own: bool) -> None:
        assert is_loopback(host) is own


def test_an_address_that_is_taken_is_told_with_the_way_on(tmp_path: Path) -> None:
    servers = Embedded(load_settings({}, root=tmp_path))
    with (
        serving_page(servers, port=0) as served,
        pytest.raises(RuntimeConfigError, match="choose another --host or --port"),
        serving_page(servers, port=served.port),
    ):
        pass


def test_another_port_serves_if_the_usual_one_is_taken(tmp_path: Path) -> None:
    servers = Embedded(load_settings({}, root=tmp_path))
    with serving_page(servers) as one, serving_page(servers) as two:
        assert one.port != two.port


def test_inspecting_an_empty_root_creates_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with served_page(root) as http:
        for path in ("/runs", "/branches", "/data", "/checks"):
            assert http.get(path).status_code == 200
    assert not root.exists()


def test_without_the_extra_the_command_says_how_to_get_it() -> None:
    script = "import sys; sys.modules['starlette'] = None; from perago.cli import app; app(['ui'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: the page needs starlette, which is not installed: run `{install_extra('ui')}`\n"
    )


def test_servers_that_are_not_configured_are_told_before_anything_is_served(tmp_path: Path) -> None:
    said = Shell(tmp_path).run_here("ui", "--remote")
    assert said.code == 1
    assert "error: lakeFS and Conductor are not configured: set" in said.err
