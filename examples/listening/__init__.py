"""Music listening events, from raw files with faults to a report: the pipeline that `make demo` runs."""
