"""Every kind of page of `perago ui`, over a root with data."""

from __future__ import annotations

from tests.support.worlds.ui_fixture_data import HOSTILE_NAME, UiFixtureData


def pages_of(ui_data: UiFixtureData) -> dict[str, tuple[str, dict[str, str]]]:
    """Path and query by name."""
    world = ui_data.world
    here = {"repo": world.repository, "ref": "main"}
    old, oldest = world.history()[-2:]
    return {
        "runs": ("/runs", {}),
        "a run that goes on": ("/run", {"id": ui_data.forked}),
        "a failed run": ("/run", {"id": ui_data.failed}),
        "a run with hostile lines": ("/run", {"id": ui_data.hostile}),
        "a map": ("/run", {"id": ui_data.mapped, "step": "row_7"}),
        "branches": ("/branches", {}),
        "data": ("/data", {}),
        "checks": ("/checks", {}),
        "history": ("/history", here),
        "publications": ("/publications", here),
        "commit": ("/commit", here),
        "folder": ("/folder", here),
        "folder with a hostile name": ("/folder", {**here, "path": HOSTILE_NAME.partition("/")[0] + "/"}),
        "parquet": ("/object", {**here, "path": "data/plays.parquet"}),
        "csv": ("/object", {**here, "path": "data/plays.csv"}),
        "json": ("/object", {**here, "path": "data/summary.json"}),
        "text": ("/object", {**here, "path": HOSTILE_NAME}),
        "binary": ("/object", {**here, "path": "data/binary.bin"}),
        "html": ("/object", {**here, "path": "report/index.html"}),
        "picture": ("/object", {**here, "path": "report/chart.svg"}),
        "where a file comes from": ("/upstream", {**here, "path": "data/result.txt"}),
        "where everything comes from": ("/upstream", here),
        "compare": ("/compare", {**here, "ref": old, "to": "main"}),
        "compare one object": ("/compare", {**here, "ref": old, "to": "main", "path": "data/result.txt"}),
        "rows": ("/rows", {**here, "ref": oldest, "to": "main", "path": "data/plays.csv", "key": "id"}),
        "rows that cannot be compared": ("/rows", {**here, "ref": oldest, "to": "main", "path": "data"}),
    }
