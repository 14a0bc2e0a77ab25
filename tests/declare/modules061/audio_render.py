from pathlib import Path

from pydantic import BaseModel, ConfigDict

import perago
from perago import PublishBudget, TaskControls, TimeoutPolicy, WorkspaceSpec

BUDGET = PublishBudget(
    observed_merge_p99_seconds=20,
    safety_margin_seconds=10,
    lakefs_merge_timeout_seconds=45,
    conductor_completion_timeout_seconds=15,
    worker_shutdown_grace_seconds=30,
    heartbeat_interval_seconds=10,
)


class RenderAudio(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stem: str


class AudioRendered(BaseModel):
    path: str


@perago.task(
    name="audio.render",
    owner_email="audio@example.com",
    workspace=WorkspaceSpec(prefix="audio/render", post=[perago.forbid_glob("**/*.tmp")]),
    controls=TaskControls(timeout=TimeoutPolicy(response_seconds=900), publish_budget=BUDGET),
    strict_params=True,
)
def render_audio(workspace: Path, params: RenderAudio) -> AudioRendered:
    target = workspace / f"{params.stem}.wav"
    target.write_bytes(b"RIFF")
    return AudioRendered(path=target.name)
