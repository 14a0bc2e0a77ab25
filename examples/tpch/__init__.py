"""TPC-H on Perago: raw files, typed tables written side by side, the 22 queries as steps, and a report."""
