"""Runs benches and stores their results."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from bench import BENCHES, Row
from bench.kinds import BOTH, TRIAL, environment_of
from bench.report import machine, write_report

RESULTS = Path(__file__).parent / "results.json"


def main(arguments: list[str]) -> int:
    """Run the named benches, or write the report."""
    if arguments == ["report"]:
        write_report(_stored())
        return 0
    there = [name for name in BENCHES if importlib.util.find_spec(f"bench.{name}")]
    asked = [argument.partition("@")[::2] for argument in arguments]
    unknown = sorted({name for name, _ in asked} - set(there))
    if unknown:
        print(f"no bench {', '.join(unknown)}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    strange = sorted({kind for _, kind in asked} - {"", *BOTH})
    if strange:
        print(f"no servers {', '.join(strange)}; there are {', '.join(BOTH)}", file=sys.stderr)
        return 2
    for name, kind in asked or [(name, "") for name in there]:
        module = importlib.import_module(f"bench.{name}")
        if module.SERVERS and "LAKECTL_SERVER_ENDPOINT_URL" not in os.environ:
            print(f"{name}: needs the servers; run `make bench`", file=sys.stderr)
            return 1
        for chosen in [kind] if kind else getattr(module, "KINDS", (TRIAL,)):
            _run_on(chosen, name, module)
    write_report(_stored())
    return 0


def _run_on(kind: str, name: str, module: ModuleType) -> None:
    """Run a bench on one kind of servers, and store its results under the names of both."""
    title, key = module.NAME, name
    if kind != TRIAL:
        title, key = f"{title} (production servers)", f"{name}@{kind}"
    print(f"== {title}", flush=True)
    with environment_of(kind):
        _store(key, title, module.run())


def _store(name: str, title: str, rows: list[Row]) -> None:
    for row in rows:
        print(f"  {row.what}: {row.value:.4g} {row.unit}{_goal(row)}", flush=True)
    stored = _stored()
    stored[name] = {
        "title": title,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": [{**asdict(row), "holds": row.holds} for row in rows],
    }
    RESULTS.write_text(json.dumps(stored, indent=2) + "\n")


def _goal(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"  ({row.bound} {row.goal:g}: {'holds' if row.holds else 'MISSED'})"


def _stored() -> dict[str, dict[str, object]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
