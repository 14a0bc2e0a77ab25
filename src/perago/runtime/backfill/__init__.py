"""`perago backfill` and `perago partitions`: one task over many partitions, on the record and the engine of a map."""
