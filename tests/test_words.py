"""The glossary holds: words that it retired name nothing, and docstrings begin as it asks.

`docs/glossary.md` says which word replaces which.  `RETIRED` counts everywhere in src and tests.  `RETIRED_IN` counts in one
package and in the tests that mirror it: the word is an ordinary one elsewhere.  String literals are free: they may be an
interface, such as a logger's name or a field of a stored record.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RETIRED = frozenset(
    [
        "anew",
        "bury",
        "courier",
        "couriers",
        "crew",
        "departure",
        "ears",
        "errand",
        "fitness",
        "hopeless",
        "incident",
        "incidents",
        "mailbox",
        "misfit",
        "mistake",
        "mistakes",
        "nursery",
        "onlooker",
        "parcel",
        "surroundings",
        "switchboard",
        "timetable",
        "turnover",
        "vain",
        "vouch",
        "wiring",
        "witness",
    ]
)
RETIRED_IN = {
    "perago/declare": frozenset(["doubt", "misfits"]),
    "perago/lake": frozenset(["keeping"]),
    "perago/lake/lakefs/transfer": frozenset(["choice", "past", "ways"]),
    "perago/orchestrator/local": frozenset(["going", "looking"]),
    "perago/runtime/attempt": frozenset(["around", "look", "looking", "looks", "pace", "pulse"]),
    "perago/runtime/doctor": frozenset(["examined", "look", "looks"]),
    "perago/runtime/maps": frozenset(["standing", "taken", "taking"]),
    "perago/runtime/observe": frozenset(["pulse"]),
    "perago/runtime/process": frozenset(["look", "looking"]),
    "perago/runtime/runs": frozenset(["going", "heard", "look", "looking", "looks"]),
    "perago/runtime/worker": frozenset(
        ["broker", "heard", "news", "pulse", "settled", "spoiled", "template", "told"]
    ),
    "perago/spark": frozenset(["looking", "shop"]),
    "perago/testing": frozenset(["bench"]),
}
RIDDLES = re.compile(
    r"(What|Who|Whose|Whether|How|Where|Why|One that|One who|So many|Its|It is|Nobody|Such)\b"
)
"""Beginnings of docstrings that hide the subject."""


def sources() -> Iterator[tuple[str, str]]:
    """Yield the path and text of every module of src and tests, except this one, which has bad examples."""
    for folder in (ROOT / "src", ROOT / "tests"):
        for path in sorted(folder.rglob("*.py")):
            if path != Path(__file__):
                yield path.relative_to(ROOT).as_posix().removeprefix("src/"), path.read_text()


def words_of(identifier: str) -> set[str]:
    """Return the words of an identifier in snake_case or CamelCase, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def retired_for(path: str) -> frozenset[str]:
    """Return the words that must not be used in a module; tests mirror the packages of src."""
    mirrored = re.sub(r"^tests/", "perago/", path)
    return RETIRED.union(
        *(words for folder, words in RETIRED_IN.items() if mirrored.startswith(f"{folder}/"))
    )


def retired_identifiers(path: str, text: str) -> Iterator[str]:
    """Yield a line for every identifier with a retired word."""
    retired = retired_for(path)
    for word in sorted(words_of(Path(path).stem) & retired):
        yield f"{path}: the module's name has the retired word {word!r}"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and (used := words_of(token.string) & retired):
            yield f"{path}:{token.start[0]} {token.string}: retired word {min(used)!r}"


def bad_beginnings(path: str, text: str) -> Iterator[str]:
    """Yield a line for every docstring that begins with a riddle or a retired word."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        doc = ast.get_docstring(node) if isinstance(node, kinds) else None
        if doc and (RIDDLES.match(doc) or words_of(doc.split()[0]) & retired_for(path)):
            yield f"{path}:{getattr(node, 'lineno', 1)} begins with {doc.split()[0]!r}: {doc.splitlines()[0][:60]}"


def test_no_identifier_has_a_retired_word() -> None:
    found = [line for path, text in sources() for line in retired_identifiers(path, text)]

    assert not found, "docs/glossary.md has the word to use:\n  " + "\n  ".join(found)


def test_every_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [line for path, text in sources() for line in bad_beginnings(path, text)]

    assert not found, "name the subject (docs/glossary.md, English):\n  " + "\n  ".join(found)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("perago/x.py", "class SlotCrew: ...", "SlotCrew: retired word 'crew'"),
        ("perago/x.py", "def _bury(): ...", "_bury: retired word 'bury'"),
        ("perago/x.py", "link.errand = 1", "errand: retired word 'errand'"),
        ("perago/runtime/worker/x.py", "news = 1", "news: retired word 'news'"),
        ("perago/runtime/worker/broker.py", "", "the module's name has the retired word 'broker'"),
        ("tests/runtime/worker/test_x.py", "def test_the_news_is_read(): ...", "retired word 'news'"),
        ("tests/cli/test_x.py", "mistakes = []", "mistakes: retired word 'mistakes'"),
    ],
)
def test_a_retired_word_is_found(path: str, text: str, said: str) -> None:
    [line] = retired_identifiers(path, text)

    assert said in line


@pytest.mark.parametrize("path", ["perago/ui/x.py", "tests/ui/test_x.py"])
def test_a_word_that_one_package_retired_is_free_elsewhere(path: str) -> None:
    assert not list(retired_identifiers(path, "news = template = broker = 1"))


def test_a_string_may_have_a_retired_word() -> None:
    assert not list(retired_identifiers("perago/x.py", 'log = get("perago.courier")  # the courier'))


@pytest.mark.parametrize(
    "doc", ["What it is.", "Whether it holds.", "Nobody reads it.", "Courier of results.", "Its number."]
)
def test_a_docstring_that_hides_its_subject_is_found(doc: str) -> None:
    assert len(list(bad_beginnings("perago/x.py", f'def f():\n    """{doc}"""'))) == 1


@pytest.mark.parametrize("doc", ["Return the head.", "The process id.", "Whatever is sent, is kept."])
def test_a_docstring_that_names_its_subject_passes(doc: str) -> None:
    assert not list(bad_beginnings("perago/x.py", f'def f():\n    """{doc}"""'))
