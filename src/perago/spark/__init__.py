"""Spark tasks: the optional extra.

`workspace` and `checks` are what task modules import and need no pyspark; everything else is imported when the first
Spark task of a process begins.
"""
