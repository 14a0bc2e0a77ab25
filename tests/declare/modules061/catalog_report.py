from __future__ import annotations

from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from perago import GuardrailViolation, WorkspaceSpec, check_guardrails, require_dir, require_glob, task

CATALOG = require_dir(PurePosixPath("catalog"))


class ReportCatalog(BaseModel):
    limit: int | None = None


class CatalogReport(BaseModel):
    names: list[str]
    complete: bool


@task(
    name="catalog_report",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(pre=[CATALOG], read_only=True),
    strict_params=False,
)
def report_catalog(workspace: Path, params: ReportCatalog) -> CatalogReport:
    names = sorted(path.name for path in (workspace / "catalog").iterdir())
    try:
        check_guardrails(workspace, [require_glob("catalog/*", min_count=2)], "post")
    except GuardrailViolation:
        return CatalogReport(names=names, complete=False)
    return CatalogReport(names=names[: params.limit], complete=True)
