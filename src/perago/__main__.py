"""`python -m perago`: the same as the `perago` command."""

from perago.cli import main

if __name__ == "__main__":
    main()
