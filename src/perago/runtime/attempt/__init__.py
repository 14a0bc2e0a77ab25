"""One attempt: the transaction and its parts.  Runs in the executor."""
