"""Print how the sources are cut into files: a report to read, not a gate.

    python dev/house_report.py [FOLDER]     # src/perago unless another package is named

A module with exactly one importer may belong inside that importer.  Packages' `__init__` and `__main__` are not listed.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "perago"


def modules_of(package: Path) -> dict[str, Path]:
    """Return every module of a package by its full name; a package counts by its `__init__`."""
    found: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the known modules that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.stem == "__init__" else module.rpartition(".")[0]
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            # `from package import module` imports the module, `from module import name` the module before the name.
            names = [full if (full := f"{base}.{alias.name}") in known else base for alias in node.names]
        yield from (name for name in names if name in known and name != module)


def single_importers(known: dict[str, Path]) -> dict[str, str]:
    """Return every module that exactly one other module imports, with that importer."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in known.items():
        for name in imports_of(module, path, known):
            importers[name].add(module)
    plain = [name for name, path in known.items() if path.stem not in {"__init__", "__main__"}]
    return {name: next(iter(importers[name])) for name in plain if len(importers[name]) == 1}


def report(package: Path) -> None:
    """Print the figures of a package, then its modules with one importer."""
    known = modules_of(package)
    lines = [len(path.read_text().splitlines()) for path in known.values()]
    single = single_importers(known)
    print(f"files                  {len(lines)}")
    print(f"lines                  {sum(lines)}")
    print(f"median lines           {statistics.median(lines):.0f}")
    print(f"files per 1,000 lines  {1000 * len(lines) / sum(lines):.1f}")
    print(f"single-importer files  {len(single)}")
    for name, importer in sorted(single.items()):
        print(f"  {name} <- {importer}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print how the sources are cut into files.")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="a package's folder")
    report(parser.parse_args().package.resolve())
