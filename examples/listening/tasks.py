"""The tasks of the pipeline: generate → clean → (count plays → sessions | count rejects → daily) → audit → report.

Sessions and daily counts run in parallel and publish to one branch.  Each declares what it reads and what it writes, so
neither has to care when the other one publishes.  The audit uses the results of both.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel
from pyspark.sql import functions as F

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TaskFailed,
    TimeoutPolicy,
    WorkspaceSpec,
    forbid_nulls,
    require_columns,
    require_file,
    require_glob,
    require_rows,
    require_unique,
    require_values,
    task,
)

from . import generate, report, transform
from .accident import Accident, prepare
from .models import DEVICES, FAULTS, GENRES, Daily, ListeningSession, Play, RawPlay, Song

OWNER = "listening@example.com"
CONTROLS = TaskControls(
    retry=RetryPolicy(count=2, delay_seconds=1), timeout=TimeoutPolicy(response_seconds=120, seconds=1800)
)
ALL = "/listening"
PUBLISHED = "/listening/published"


class Generate(BaseModel):
    rows: int


class Generated(BaseModel):
    rows: int


@task(
    name="listening_generate",
    description="Writes raw plays, with faults, and the catalogue of songs.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=ALL, post=[require_glob("raw/csv/*.csv"), require_glob("raw/json/*.json")]
    ),
    controls=CONTROLS,
)
def generate_plays(workspace: SparkWorkspace, params: Generate) -> Generated:
    plays = generate.raw_plays(workspace.spark, params.rows)
    phones = generate.from_phones(plays)
    workspace.write(plays.where(phones), "raw/json", format="json")
    workspace.write(plays.where(~phones), "raw/csv", format="csv", header=True)
    workspace.write(generate.songs(workspace.spark), "published/songs", schema=Song)
    return Generated(rows=params.rows)


class Clean(BaseModel):
    accident: Accident


class Cleaned(BaseModel):
    table: str


@task(
    name="listening_clean",
    description="Turns raw plays into plays that can be counted, each once.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=ALL,
        pre=[require_glob("raw/csv/*.csv"), require_glob("raw/json/*.json")],
        post=[require_columns("published/plays", Play), require_glob("published/rejected/*.parquet")],
    ),
    controls=CONTROLS,
)
def clean_plays(workspace: SparkWorkspace, params: Clean) -> Cleaned:
    prepare(params.accident)
    from_files = workspace.read("raw/csv", format="csv", schema=RawPlay, header=True)
    raw = from_files.union(workspace.read("raw/json", format="json", schema=RawPlay))
    workspace.write(transform.clean(raw), "published/plays", schema=Play)
    workspace.write(transform.rejected(raw), "published/rejected")
    return Cleaned(table="published/plays")


class Look(BaseModel):
    pass


class PlaysSeen(BaseModel):
    plays: int
    users: int
    songs: int


@task(
    name="listening_profile_plays",
    description="Counts plays, users and songs.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PUBLISHED, read_only=True),
    controls=CONTROLS,
)
def profile_plays(workspace: SparkWorkspace, params: Look) -> PlaysSeen:
    plays = workspace.read("plays", schema=Play)
    [row] = plays.agg(
        F.count(F.lit(1)).alias("plays"),
        F.countDistinct("user").alias("users"),
        F.countDistinct("song_id").alias("songs"),
    ).collect()
    return PlaysSeen(**row.asDict())


class RejectsSeen(BaseModel):
    by_fault: dict[str, int]


@task(
    name="listening_profile_rejects",
    description="Counts what was rejected, by fault.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=PUBLISHED, read_only=True, pre=[require_values("rejected", "fault", FAULTS)]
    ),
    controls=CONTROLS,
)
def profile_rejects(workspace: SparkWorkspace, params: Look) -> RejectsSeen:
    counts = workspace.read("rejected").groupBy("fault").count().collect()
    return RejectsSeen(by_fault={row["fault"]: row["count"] for row in sorted(counts)})


class SessionsMade(BaseModel):
    sessions: int


@task(
    name="listening_sessions",
    description="Makes sessions of plays, while the days are counted.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=PUBLISHED,
        reads=("plays",),
        writes=("sessions",),
        on_advanced="rebase",
        on_abandoned="supersede",
        post=[require_unique("sessions", "user", "number")],
    ),
    controls=CONTROLS,
)
def make_sessions(workspace: SparkWorkspace, params: Look) -> SessionsMade:
    plays = workspace.read("plays", schema=Play)
    workspace.write(transform.sessions(plays), "sessions", schema=ListeningSession)
    return SessionsMade(sessions=workspace.read("sessions").count())


class DaysCounted(BaseModel):
    days: int


@task(
    name="listening_daily",
    description="Counts each day by genre, while sessions are made.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=PUBLISHED,
        reads=("plays", "songs"),
        writes=("daily", "summary"),
        on_advanced="rebase",
        on_abandoned="supersede",
        post=[require_unique("daily", "day", "genre"), require_values("daily", "genre", GENRES)],
    ),
    controls=CONTROLS,
)
def count_days(workspace: SparkWorkspace, params: Look) -> DaysCounted:
    plays, songs = workspace.read("plays", schema=Play), workspace.read("songs", schema=Song)
    workspace.write(transform.daily(plays, songs).coalesce(1), "daily", schema=Daily)
    written = workspace.read("daily", schema=Daily)
    workspace.write(written.orderBy("day", "genre").coalesce(1), "summary", format="csv", header=True)
    return DaysCounted(days=written.select("day").distinct().count())


class Audit(BaseModel):
    most_rejected_percent: float | None = None


class Audited(BaseModel):
    rejected_percent: float


@task(
    name="listening_audit",
    description="Holds the tables against the rules; nothing is reported unless all of them hold.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=PUBLISHED,
        pre=[
            require_rows("plays"),
            forbid_nulls("plays"),
            require_unique("plays", "play_id"),
            require_values("plays", "device", DEVICES),
            forbid_nulls("sessions"),
            forbid_nulls("daily"),
        ],
        post=[require_rows("quality", 3, 3)],
    ),
    controls=CONTROLS,
)
def audit(workspace: SparkWorkspace, params: Audit) -> Audited:
    plays, kept = workspace.read("plays", schema=Play), F.count(F.lit(1)).alias("rows")
    [counted] = plays.agg(kept, F.sum("ms").alias("ms")).collect()
    [per_day] = workspace.read("daily").agg(F.sum("plays").alias("rows"), F.sum("ms").alias("ms")).collect()
    [sessions] = workspace.read("sessions").agg(F.sum("ms").alias("ms")).collect()
    lost = workspace.read("rejected").count()
    percent = round(100 * lost / (lost + counted["rows"]), 3)
    most = 5.0 if params.most_rejected_percent is None else params.most_rejected_percent
    missing, lost_ms = counted["rows"] - per_day["rows"], counted["ms"] - sessions["ms"]
    rules = [
        ("percent of plays rejected", percent, most),
        ("plays missing from the days", float(missing), 0.0),
        ("milliseconds missing from the sessions", float(lost_ms), 0.0),
    ]
    for rule, measured, allowed in rules:
        if measured > allowed:
            raise TaskFailed(f"audit: rule '{rule}' does not hold: {measured:g}, allowed is {allowed:g}")
    table = workspace.spark.createDataFrame(rules, "rule string, measured double, allowed double")
    workspace.write(table.coalesce(1), "quality")
    return Audited(rejected_percent=percent)


class Report(BaseModel):
    plays: int
    users: int
    songs: int
    sessions: int
    days: int
    rejects: dict[str, int]
    rejected_percent: float


class Reported(BaseModel):
    chart: str
    page: str


@task(
    name="listening_report",
    description="Draws a chart and writes a page, in plain Python.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix=PUBLISHED, post=[require_file("report/chart.png"), require_file("report/index.html")]
    ),
    controls=CONTROLS,
)
def make_report(workspace: Path, params: Report) -> Reported:
    days = report.read_summary(workspace / "summary")
    folder = workspace / "report"
    folder.mkdir(exist_ok=True)
    report.draw(days, folder / "chart.png")
    (folder / "index.html").write_text(report.page(days, params.model_dump()), encoding="utf-8")
    return Reported(chart="report/chart.png", page="report/index.html")
