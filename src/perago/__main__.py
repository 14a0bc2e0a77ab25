"""The `perago` command, and `python -m perago`.

The rule: Ctrl-C while the commands are being loaded ends Perago as quietly as it does later.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""What shells give a process that Ctrl-C ended."""


def main() -> None:
    """Load the command, then run it."""
    try:
        from perago.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
