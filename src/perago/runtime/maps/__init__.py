"""One task over a table of workspaces: the rows, the run's record in the lake, and driving an engine; `perago map`."""
