from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from perago import (
    ExecutionLimits,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    task,
)


class BuildFeatures(BaseModel):
    source: str
    columns: list[str] = Field(default_factory=list)


class FeaturesBuilt(BaseModel):
    row_count: int
    columns: list[str]


@task(
    name="features.build",
    owner_email="data@example.com",
    description="Counts the rows of a source file.",
    workspace=WorkspaceSpec(
        prefix="/features",
        pre=[
            require_file("raw/manifest.json"),
            require_dir("raw"),
            require_glob("raw/*.csv", min_count=1, max_count=20),
        ],
        post=[require_glob("built/**/*.txt"), forbid_glob("tmp/**")],
    ),
    controls=TaskControls(
        retry=RetryPolicy(
            count=4, logic="EXPONENTIAL_BACKOFF", delay_seconds=5, max_delay_seconds=60, jitter_ms=250
        ),
        timeout=TimeoutPolicy(
            policy="RETRY", seconds=1800, response_seconds=900, poll_seconds=60, total_seconds=7200
        ),
        limits=ExecutionLimits(
            concurrent_exec_limit=2, rate_limit_per_frequency=10, rate_limit_frequency_in_seconds=60
        ),
    ),
)
def build_features(workspace: Path, params: BuildFeatures) -> FeaturesBuilt:
    lines = (workspace / params.source).read_text().splitlines()
    target = workspace / "built" / "rows" / "count.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(str(len(lines)))
    return FeaturesBuilt(row_count=len(lines), columns=params.columns)
