"""Whether the other side is lakeFS and Conductor, and not just anything that answers; each failure is one line.

The rule: a line names what was looked for, its address and the setting that holds it.
"""

from __future__ import annotations

from perago.errors import LakeError, LakeUnauthenticated, OrchestratorError, RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.settings import Settings, shown_address

_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_KEYS = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"


def name_lake(lake: Lake, settings: Settings) -> str:
    """The lake with its version and address, by its own word."""
    where = shown_address(settings.lakefs.endpoint) if settings.lakefs else "no address"
    try:
        return f"{lake.server()} at {where}"
    except LakeUnauthenticated as error:
        raise RuntimeConfigError(
            f"lakeFS at {where} does not know the keys: check {_KEYS} ({_cause(error)})"
        ) from error
    except LakeError as error:
        raise RuntimeConfigError(f"no lakeFS at {where}: check {_ENDPOINT} ({_cause(error)})") from error


def name_orchestrator(orchestrator: Orchestrator, settings: Settings) -> str:
    """The orchestrator with its version and address, by its own word."""
    where = shown_address(settings.conductor.url) if settings.conductor else "no address"
    try:
        return f"{orchestrator.server()} at {where}"
    except OrchestratorError as error:
        raise RuntimeConfigError(
            f"no Conductor at {where}: check CONDUCTOR_SERVER_URL, which ends in /api ({_cause(error)})"
        ) from error


def _cause(error: Exception) -> str:
    """What went wrong, without the remedy that the line gives already."""
    return str(error).partition("; check ")[0]


def server_names(
    settings: Settings, lake: Lake, orchestrator: Orchestrator, *, embedded: bool
) -> tuple[str, str]:
    """Both servers, as they call themselves."""
    if embedded:
        return lake.server(), orchestrator.server()
    return name_lake(lake, settings), name_orchestrator(orchestrator, settings)
