"""The tasks that the workflows of these tests run."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, Self

from pydantic import AliasChoices, BaseModel, Field, FilePath, field_validator, model_validator

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.declare.task import TaskDefinition

OWNER = "data@example.com"


class Limits(BaseModel):
    top: int = 3
    names: list[str] = []


class Make(BaseModel):
    rows: int
    day: date | None = None
    limits: Limits = Limits()
    label: str | int = ""


class Part(BaseModel):
    size: int
    name: str | None = None


class Made(BaseModel):
    rows: int
    parts: list[Part]
    totals: dict[str, int]
    best: Part | None = None
    anything: Any = None


class Nothing(BaseModel):
    pass


class Counted(BaseModel):
    total: int


class Moving(BaseModel):
    """A model whose fields may come from elsewhere."""

    low: int
    high: int = Field(validation_alias=AliasChoices("high", "top"))

    @model_validator(mode="before")
    @classmethod
    def filled(cls, values: Any) -> Any:
        return {"low": values["one"], **values} if "one" in values else values


class Careful(BaseModel):
    """A model with rules of its author's."""

    low: int = 0
    high: int = 1
    file: FilePath | None = None

    @field_validator("high")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @model_validator(mode="after")
    def ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


# Without retries, which a JOIN must not wait for: `stubborn` has them.
ONCE = TaskControls(retry=RetryPolicy(count=0))


@task(name="make", owner_email=OWNER, controls=ONCE, workspace=WorkspaceSpec(prefix="/made"))
def make(workspace: Path, params: Make) -> Made: ...


@task(name="look", owner_email=OWNER, controls=ONCE, workspace=WorkspaceSpec(read_only=True))
def look(workspace: Path, params: Nothing) -> Counted: ...


@task(name="count", owner_email=OWNER)
def count(params: Nothing) -> Counted: ...


@task(name="loose", owner_email=OWNER, strict_params=False)
def loose(params: Limits) -> Counted: ...


@task(name="moving", owner_email=OWNER)
def moving(params: Moving) -> Counted: ...


@task(name="careful", owner_email=OWNER)
def careful(params: Careful) -> Counted: ...


TASKS: dict[str, TaskDefinition] = {
    fn.__perago_task__.name: fn.__perago_task__  # type: ignore[attr-defined]
    for fn in (make, look, count, loose, moving, careful)
}
