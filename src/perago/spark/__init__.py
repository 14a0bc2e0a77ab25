"""Spark tasks: the optional extra.

Task modules import `workspace`, which needs no pyspark; everything else is imported when the first Spark task of a
process starts.
"""
