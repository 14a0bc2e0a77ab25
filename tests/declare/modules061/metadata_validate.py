from datetime import datetime
from enum import Enum

from pydantic import BaseModel

from perago import TaskFailed, TaskTerminalError, task


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Source(BaseModel):
    uri: str
    seen_at: datetime
    level: Level = Level.LOW


class ValidateMetadata(BaseModel):
    title: str
    sources: list[Source]


class Finding(BaseModel):
    uri: str
    ok: bool


class Validated(BaseModel):
    findings: list[Finding]


@task(name="metadata.validate", owner_email="data@example.com")
def validate_metadata(params: ValidateMetadata) -> Validated:
    if not params.sources:
        raise TaskFailed("no sources yet")
    if not params.title:
        raise TaskTerminalError("a title is required")
    return Validated(findings=[Finding(uri=source.uri, ok=True) for source in params.sources])
