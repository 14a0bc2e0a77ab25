"""docs/settings.md is what the code says, and no variable that the code reads is missing there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perago
from perago.settings import load_settings
from perago.settings_reference import ROOT, VARIABLES
from settings_page import PAGE, page
from tests.support.docs.sources import parsed

SRC = Path(perago.__file__).parent
LOOKS_LIKE_ONE = re.compile(r"(PERAGO|CONDUCTOR|LAKECTL|OTEL|AWS)_[A-Z_]*[A-Z]")
OF_THE_SYSTEM = {
    "ARROW_DEFAULT_MEMORY_POOL",
    "HOME",
    "PATH",
    "SPARK_LOCAL_DIRS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
}
"""Read as every program reads them; the page speaks of the home folder, of PATH and of certificates.  Spark sets its
variable for the Python processes of its executors, and Perago sets Arrow's for the process that decodes previews."""


def environment_reads(tree: ast.Module) -> Iterator[str]:
    """Names of variables: constants that look like one, and whatever is looked up in something called `environ`."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if LOOKS_LIKE_ONE.fullmatch(text):
                yield text
            case (
                ast.Call(func=ast.Attribute(value=where), args=[ast.Constant(value=str(text)), *_])
                | ast.Subscript(value=where, slice=ast.Constant(value=str(text)))
            ) if ast.unparse(where).endswith("environ"):
                yield text


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run `python dev/settings_page.py`"


def test_every_variable_that_the_sources_read_has_its_row() -> None:
    read = {
        name
        for source in SRC.rglob("*.py")
        if source.name != "settings_reference.py"
        for name in environment_reads(parsed(source))
    }

    assert read - OF_THE_SYSTEM == set(VARIABLES)


def test_a_read_in_any_form_is_found() -> None:
    source = """
environ.get("ONE"); os.environ["TWO"]; os.environ.setdefault("THREE", "x"); NAMES = ("PERAGO_FOUR",)
"PERAGO_DEV_"; "PERAGO_* is a family"; settings.get("FIVE")
"""
    assert set(environment_reads(ast.parse(source))) == {"ONE", "TWO", "THREE", "PERAGO_FOUR"}


@pytest.mark.parametrize(
    "name", [name for name, one in VARIABLES.items() if one.default and name.startswith("PERAGO_")]
)
def test_saying_the_default_changes_nothing(name: str) -> None:
    said = (VARIABLES[name].default or "").replace(ROOT, ".perago")

    assert load_settings({name: said}) == load_settings({})


def test_only_the_two_secrets_are_marked_as_secrets() -> None:
    assert {name for name, one in VARIABLES.items() if one.secret} == {
        "CONDUCTOR_AUTH_SECRET",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
    }
