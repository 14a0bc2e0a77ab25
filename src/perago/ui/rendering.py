"""Renders templates, and formats values for them.

Everything is always escaped.  Untrusted text cannot hide anything either: control and bidi characters are shown as
visible escapes.  Links are built by `link`, so that no name can break out of one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perago.protocol.names import SHORT
from perago.protocol.provenance import Provenance
from perago.protocol.signing import author_of, maker_of
from perago.runtime.observe.sanitize import overwritten, printable
from perago.runtime.runs import format
from perago.runtime.runs.run_input import values_text, workspaces_in
from perago.ui.text_preview import DEPTH, depth_of

HERE = Path(__file__).parent
STATIC = HERE / "static"
MOST_JSON_CHARS = 20_000
_HIDING = re.compile("[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
_STATES: Mapping[str, tuple[str, str]] = {
    "COMPLETED": ("good", "✓"),
    "COMPLETED_WITH_ERRORS": ("warn", "✓"),
    "SKIPPED": ("calm", "–"),
    "IN_PROGRESS": ("busy", "●"),
    "RUNNING": ("busy", "●"),
    "PAUSED": ("calm", "‖"),
    "STOPPED": ("calm", "‖"),
    "SCHEDULED": ("calm", "○"),
    "CANCELED": ("calm", "–"),
    "TIMED_OUT": ("warn", "!"),
    "unknown": ("calm", "?"),
    "": ("calm", "○"),
}
_BAD = ("bad", "✕")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page that is updated live: it is sent to the browser again whenever it changes."""

    id: str
    html: str
    digest: str


def render(template: str, **values: Any) -> str:
    """Render a template with these values."""
    return _environment().get_template(template).render(**values)


def part(name: str, template: str, **values: Any) -> Part:
    """Render a template as a part of a page that is updated live."""
    html = render(template, **values)
    return Part(name, html, hashlib.sha256(html.encode("utf-8", "surrogatepass")).hexdigest()[:16])


def escape_hidden(text: object) -> str:
    """Return untrusted text, with characters that hide or reverse text shown as visible escapes."""
    safe = str(text).encode("utf-8", "backslashreplace").decode()
    return _HIDING.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(safe))


def link(path: str, /, **query: object) -> str:
    """Return a link to a page in this application."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    text = urlencode(given, quote_via=quote, errors="surrogatepass")
    return f"{path}?{text}" if text else path


def pretty(value: Any) -> str:
    """Format a value as human-readable JSON, truncated if it is very long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if depth_of(text) <= DEPTH:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) > MOST_JSON_CHARS:
        text = text[:MOST_JSON_CHARS] + f"\n… ({len(text) - MOST_JSON_CHARS} characters more)"
    return escape_hidden(text)


def moment(seconds: float | None) -> str:
    """Format a timestamp in UTC."""
    return "–" if seconds is None else _utc(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _iso(seconds: float) -> str:
    return _utc(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _took(seconds: float | None) -> str:
    if seconds is not None and seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return format.duration(seconds)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        escape_hidden=escape_hidden,
        pretty=pretty,
        moment=moment,
        iso=_iso,
        took=_took,
        values_text=values_text,
        workspaces_in=workspaces_in,
        changed_nothing=format.changed_nothing,
        size=format.size,
        spark_lines=format.spark_lines,
        made_with=format.made_with,
        provenance=lambda commit: Provenance.of(commit.metadata),
        maker=maker_of,
        author=author_of,
        short=lambda text: str(text)[:SHORT],
        overwritten=lambda text: escape_hidden(overwritten(str(text))),
        state_class=lambda status: _STATES.get(status, _BAD)[0],
        state_sign=lambda status: _STATES.get(status, _BAD)[1],
    )
    environment.globals.update(link=link, version=_version())
    return environment


def _version() -> str:
    """Return a digest of the static files. It is part of their URLs, so that browsers reload them after a change."""
    total = hashlib.sha256()
    for file in sorted(STATIC.iterdir()):
        total.update(file.read_bytes())
    return total.hexdigest()[:12]
