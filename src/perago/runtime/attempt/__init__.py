"""One attempt: the transaction and its parts, which run in the executor."""
