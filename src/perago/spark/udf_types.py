"""Allows UDFs to be declared before there is a session: `@F.udf("int")` at the top of a task module.

PySpark asks the JVM to parse the text of a return type while the decorator runs.  Task modules are imported without a
session: by `perago check`, by every worker, and in Spark's own Python workers.  So the type stays text until there is a
session, and PySpark parses it when the function is first used.

A UDF also caches its Java object, which is of no use to a later context in the same process.  So the Java object is
recreated for each context.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULE = "pyspark.sql.udf"


def parse_types_late() -> None:
    """Allow UDFs to be declared without a session. Takes effect once PySpark is imported, and does not import it."""
    if _MODULE in sys.modules:
        _patch(sys.modules[_MODULE])
    elif not any(isinstance(finder, _PatchOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PatchOnImport())


class _PatchOnImport(MetaPathFinder):
    """An import hook that patches `pyspark.sql.udf` as soon as it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find `pyspark.sql.udf` in the usual way, and arrange for it to be patched after it has been executed."""
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader

        def run_and_patch(module: ModuleType) -> None:
            # Do this first, because all modules in a zip file share one loader.
            del loader.exec_module
            loader.exec_module(module)
            _patch(module)

        loader.exec_module = run_and_patch
        return spec


def _patch(module: Any) -> None:
    udf = module.UserDefinedFunction
    parsed, java_udf = udf.returnType, udf._judf
    if getattr(parsed.fget, "__module__", None) == __name__:
        return

    def return_type(self: Any) -> Any:
        if isinstance(self._returnType, str) and _context() is None:
            return self._returnType
        return parsed.fget(self)

    def judf(self: Any) -> Any:
        context = _context()
        if getattr(self, "_perago_context", context) is not context:
            self._judf_placeholder = None
        self._perago_context = context
        return java_udf.fget(self)

    udf.returnType, udf._judf = property(return_type), property(judf)


def _context() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context
