"""The `perago` command, and `python -m perago`.

Ctrl-C while the commands are being loaded must end Perago as quietly as it does later.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit status that shells report for a process ended by Ctrl-C."""


def main() -> None:
    """Load the `perago` command line, then run it."""
    try:
        from perago.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
