"""`perago ui`: serve a page that shows runs, branches, data and checks, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import Remote, Root
from perago.cli.server_choice import choose_servers
from perago.errors import RuntimeConfigError, install_extra
from perago.settings import shown_address

if TYPE_CHECKING:
    from perago.backend import Embedded, Real
    from perago.ui.server import Served

_EXTRA = ("jinja2", "starlette", "uvicorn")

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="N",
        help="The port; 8642 by default, or a free one if that is in use.",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="The address to listen on; all but loopback addresses need the printed token.",
    ),
]


def ui(root: Root = None, remote: Remote = None, port: Port = None, host: Host = "127.0.0.1") -> None:
    """Serve a page that shows runs, branches, data and checks, until Ctrl-C."""
    check_page()
    choice = choose_servers(root, remote)
    servers = choice.backend()
    choice.name_lake()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serving_page(servers, host=host, port=port) as served:
        output.say(served.address())
        output.note("press Ctrl-C to stop")
        stop.wait()


def serving_page(
    servers: Embedded | Real, *, host: str = "127.0.0.1", port: int | None = None
) -> AbstractContextManager[Served]:
    """Serve the page for these servers while the block runs."""
    check_page()
    from perago.backend import has_local_lake, open_lakefs, open_local_lake
    from perago.ui.data_source import DataSource
    from perago.ui.server import serving

    settings = servers.settings
    if servers.embedded:
        site = DataSource(
            servers,
            lambda: open_local_lake(settings) if has_local_lake(settings) else None,
            where=f"embedded, {_short(settings.root)}",
        )
    else:
        lakefs = settings.lakefs.endpoint if settings.lakefs else ""
        conductor = settings.conductor.url if settings.conductor else ""
        open_both = open_lakefs(settings)
        site = DataSource(
            servers,
            lambda: open_both,
            where=f"lakeFS {shown_address(lakefs)} · Conductor {shown_address(conductor)}",
        )
    return serving(site, host=host, port=port)


def check_page() -> None:
    """Raise `RuntimeConfigError` if the packages in the extra `ui` are not installed."""
    try:
        import perago.ui.server  # noqa: F401 - to see whether it can be imported
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise RuntimeConfigError(
            f"the page needs {package}, which is not installed: run `{install_extra('ui')}`"
        ) from missing


def _short(root: Path) -> str:
    """Return the root, with the home folder abbreviated to `~`."""
    full = root.resolve()
    return f"~/{full.relative_to(Path.home())}" if full.is_relative_to(Path.home()) else str(full)
