"""The task under "Partitions" in docs/declaring-tasks.md: it runs as it stands there, and two days run side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from perago.declare.discovery import load_tasks
from perago.declare.task import forget_tasks
from perago.testing import try_task, try_workflow
from tests.support.tasks.workflows import fork, join, simple, workflow

PAGE = Path(__file__).parents[2] / "docs" / "declaring-tasks.md"
DAYS = ("2026-01-01", "2026-01-02")
RAW = {f"raw/day={day}/a.csv": f"DAY {day}" for day in DAYS}


@pytest.fixture
def clean_day(tmp_path: Path) -> Iterator[Any]:
    section = PAGE.read_text().partition("### Partitions\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    path = tmp_path / "partitioned_plays.py"
    path.write_text(found[1])
    [task] = load_tasks([str(path)])
    yield task.fn
    forget_tasks(task.fn.__module__)


def test_it_cleans_the_partition_of_its_params(clean_day: Any) -> None:
    params = clean_day.__perago_task__.params_model(day=date(2026, 1, 2), region="a/b")

    trial = try_task(clean_day, RAW, params=params)

    assert trial.status == "COMPLETED", trial
    assert trial.changes.put == ("clean/a%2Fb/day=2026-01-02/a.csv",)
    assert trial.files["clean/a%2Fb/day=2026-01-02/a.csv"] == b"day 2026-01-02"


def test_its_wrong_input_reads_as_on_the_page(clean_day: Any) -> None:
    trial = try_task(clean_day, RAW, params={"day": "2026-01-02", "region": ""})

    assert trial.status == "FAILED"
    assert trial.reason in PAGE.read_text()


def test_two_days_are_published_side_by_side(clean_day: Any) -> None:
    steps = [
        simple(
            f"day{number}",
            name="clean_day",
            inputParameters={"workspace": "${workflow.input.workspace}", "params": {"day": day}},
        )
        for number, day in enumerate(DAYS)
    ]

    trial = try_workflow(
        workflow(fork("days", *([one] for one in steps)), join("joined", "day0", "day1")), clean_day, RAW
    )

    assert trial.status == "COMPLETED", trial
    assert {f"clean/eu/day={day}/a.csv" for day in DAYS} <= set(trial.files)
