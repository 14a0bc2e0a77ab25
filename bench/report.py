"""Writes bench/RESULTS.md from the stored results."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

REPORT = Path(__file__).parent / "RESULTS.md"
_PACKAGES = ("pydantic", "lakefs-sdk", "obstore", "urllib3", "conductor-python", "pyspark")


def machine() -> str:
    """Return a description of the machine and the relevant versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {python}, {', '.join(versions)}"


def write_report(stored: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the report. All figures come from the results file."""
    lines = [
        "# What we measured",
        "",
        "Made by `python -m bench report` from `bench/results.json`, which `make bench` writes. Machines here are shared",
        "and noisy: ratios of one run are worth more than times. lakeFS 1.84.0 and Conductor 3.32.3 run on the same cores;",
        "on production servers lakeFS is on PostgreSQL and an S3 store (versitygw), which run there too.",
    ]
    for name, bench in stored.items():
        lines += [
            "",
            f"## {bench['title']}",
            "",
            f"`python -m bench {name}`, {bench['when']}: {bench['machine']}",
            "",
        ]
        lines += ["| what | measured | goal |", "|---|---|---|"]
        for row in bench["rows"]:
            goal = "" if row["goal"] is None else f"{row['bound']} {row['goal']:g} {row['unit']}"
            mark = {True: "", False: " (missed)", None: ""}[row["holds"]]
            lines.append(f"| {row['what']} | {row['value']:.4g} {row['unit']} | {goal}{mark} |")
    REPORT.write_text("\n".join(lines) + "\n")
