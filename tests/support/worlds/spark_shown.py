"""What Spark shows of a running application to whoever looks: its page, and the command lines of its processes."""

from __future__ import annotations

import urllib.request

from tests.support.processes.processes import all_commands


def shown_by_spark(port: int) -> str:
    """The environment page of the running UI, and every command line of this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/environment/", timeout=60) as answer:
        page: str = answer.read().decode()
    return all_commands() + page
