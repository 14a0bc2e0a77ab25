"""Writes docs/settings.md from `perago.settings_reference`, which contains every variable's default and description.

python dev/settings_page.py           write the page
python dev/settings_page.py --check   exit with code 1 if the page differs from the code
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from perago.settings_reference import GROUPS, Group, Variable

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
COMMAND = "python dev/settings_page.py"

_OPENING = """\
# Settings

Perago is configured by environment variables, which a command reads once when it starts. A variable that is set to
nothing counts as not set. If a value is wrong, the command ends with one line that names the variable and what it takes.
Every command warns about `PERAGO_*` variables that it does not know.

A duration is a number with a unit, such as `30s`, `5m`, `1h` or `2d`; without a unit it is in seconds. A size is a number
with a unit, such as `500MB` or `10GB`; without a unit it is in bytes.

[Production](production.md) shows how to hand secrets to a worker. Perago replaces them with `***` in everything it prints
([what it masks](observability.md#secrets)).
"""

_CLOSING = (
    f"<!-- Made by `{COMMAND}` from src/perago/settings_reference.py: edit that file, not this page. -->\n"
)


def page() -> str:
    """Return the whole page."""
    return "\n".join([_OPENING, *(line for group in GROUPS for line in _section(group)), _CLOSING])


def _section(group: Group) -> Iterator[str]:
    yield f"## {group.title}\n"
    yield f"{group.about}\n"
    yield "| variable | default | meaning | used by |"
    yield "|---|---|---|---|"
    for variable in group.variables:
        yield f"| `{variable.name}` | {variable.shown_default} | {_meaning(variable)} | {variable.used_by} |"
    yield ""


def _meaning(variable: Variable) -> str:
    kinds = [variable.values] if variable.values else []
    if variable.secret:
        kinds.append("a secret")
    return variable.meaning + (f" ({'; '.join(kinds)})" if kinds else "")


def main(arguments: list[str]) -> int:
    """Write the page, or check that it is up to date."""
    if arguments == ["--check"]:
        same = PAGE.read_text(encoding="utf-8") == page()
        print(
            "the page is up to date" if same else f"docs/settings.md differs from the code: run `{COMMAND}`"
        )
        return 0 if same else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
