"""Secrets are masked in every form, and no text of others controls the reader's terminal."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import httpx
import pytest

from perago.runtime.observe.sanitize import MASK, Masker, overwritten, printable, secrets_of, short_secrets
from perago.settings import Settings, load_settings
from tests.support.processes.commands import SERVERS

ODD = 'lake/secret+1 "q" \\ é%'


def settings(tmp_path: Path, **environ: str) -> Settings:
    return load_settings({"PERAGO_ROOT": str(tmp_path), **environ})


def basic(login: str) -> str:
    return base64.b64encode(login.encode()).decode().rstrip("=")


@pytest.mark.parametrize("secret", ["1", "ab", "abc"])
def test_a_secret_of_three_characters_or_fewer_garbles_no_line(secret: str) -> None:
    assert Masker([secret])(f"attempt {secret} of 12, abc") == f"attempt {secret} of 12, abc"
    assert Masker([secret, f"{secret}defg"])(f"{secret}defg") == MASK


def test_a_short_password_is_still_masked_in_the_header_that_carries_it(tmp_path: Path) -> None:
    short = settings(tmp_path, **SERVERS | {"CONDUCTOR_AUTH_SECRET": "abc"})

    assert Masker(secrets_of(short))(f"Basic {basic('key:abc')}") == f"Basic {MASK}"
    assert short_secrets(short) == ["CONDUCTOR_AUTH_SECRET"]


def test_the_secrets_are_those_that_open_a_server(tmp_path: Path) -> None:
    assert secrets_of(settings(tmp_path)) == set()
    assert secrets_of(settings(tmp_path, **SERVERS)) == {
        "lake/secret+1",
        "conductor-secret",
        "in-the-url",
        basic("AKIA:lake/secret+1"),
        basic("key:conductor-secret"),
        basic("user:in-the-url"),
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [("p%40ss%2fword", "p@ss/word"), ("p%40ss!word", "p@ss!word"), ("%FFpass", "%FFpass")],
)
def test_a_password_in_a_url_is_known_as_it_is_written_and_as_it_is_meant(
    tmp_path: Path, written: str, meant: str
) -> None:
    url = f"http://me:{written}@conductor.example/api"
    mask = Masker(secrets_of(settings(tmp_path, CONDUCTOR_SERVER_URL=url)))
    assert mask(f"{url} {meant}") == f"http://me:{MASK}@conductor.example/api {MASK}"
    assert mask(quote(meant, safe="")) == MASK


def test_settings_that_spark_redacts_are_secrets_too(tmp_path: Path) -> None:
    conf = "spark.hadoop.fs.s3a.secret.key = hush=1; spark.ui.enabled=false;;spark.x.PASSWORD=hush2"
    assert secrets_of(settings(tmp_path, PERAGO_SPARK_CONF=conf)) == {"hush=1", "hush2"}


@pytest.mark.parametrize(
    "write", [str, quote, lambda text: quote(text, safe=""), quote_plus, json.dumps, repr]
)
def test_a_secret_is_known_in_the_forms_in_which_it_is_shown(write: object) -> None:
    shown = write(ODD)  # type: ignore[operator]
    masked = Masker([ODD])(f"<{shown}> and <{shown.lower()}>" if "%" in shown else shown)
    assert MASK in masked
    assert "secret" not in masked


def test_the_header_that_an_http_client_makes_of_a_login_is_known(tmp_path: Path) -> None:
    mask = Masker(secrets_of(settings(tmp_path, **SERVERS)))
    request = httpx.Request("GET", "http://lake.example")
    sent = next(httpx.BasicAuth("AKIA", "lake/secret+1").auth_flow(request)).headers["Authorization"]
    assert mask(sent).rstrip("=") == f"Basic {MASK}"


def test_a_secret_that_holds_another_one_leaves_nothing_behind() -> None:
    mask = Masker(["abcd", "abcdef", ""])
    assert mask("abcdef abcd") == f"{MASK} {MASK}"


def test_without_secrets_nothing_is_hidden() -> None:
    assert Masker([])("a text") == "a text"


@pytest.mark.parametrize("equals", ["=", "%3D"])
def test_the_signature_of_a_presigned_address_is_hidden_wherever_it_stands(equals: str) -> None:
    address = f"http://store/bucket/key?X-Amz-Expires=900&X-Amz-Signature{equals}{'0a' * 32}&x-id=GetObject"

    hidden = Masker([])(f"GET {address} 200, {json.dumps({'physical_address': address})}")

    assert "0a0a" not in hidden
    assert hidden.count(MASK) == 2
    assert hidden.count("X-Amz-Expires=900") == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab, žluťoučký 🎉", "two\nlines\tand a tab, žluťoučký 🎉"),
        ("\x1b[31mred\x1b[0m and plain", "red and plain"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b[?1049hother screen", "other screen"),
        ("\x9b2Jgone", "gone"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPstring\x1b\\text", "text"),
        ("reset \x1bc", "reset \\x1bc"),
        ("unfinished \x1b]0;title", "unfinished \\x1b]0;title"),
        ("unfinished \x1b[31", "unfinished \\x1b[31"),
        ("bell\x07 back\x08 del\x7f nul\x00", "bell\\x07 back\\x08 del\\x7f nul\\x00"),
        ("clean: FAILED: x\rclean: COMPLETED", "clean: FAILED: x\\rclean: COMPLETED"),
        ("ended so\r\nand so", "ended so\nand so"),
    ],
)
def test_terminal_controls_are_removed_or_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_colours_stay_where_they_are_wanted_and_end_with_the_text() -> None:
    assert printable("\x1b[1;31mred\x1b[2K", styles=True) == "\x1b[1;31mred\x1b[0m"
    assert printable("plain", styles=True) == "plain"


def test_no_character_of_control_is_left_of_any_two() -> None:
    controls = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]

    left = [
        printable(f"a{one}{other}b") for one in controls for other in [*controls, "[", "]", "c", "P", "\\"]
    ]

    assert not [text for text in left if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)]


def test_a_progress_bar_is_what_it_drew_last() -> None:
    assert overwritten("10 %\r20 %\r30 %\r") == "30 %"
    assert overwritten("no bar") == "no bar"
    assert overwritten("\r") == ""
