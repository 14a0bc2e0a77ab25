"""One attempt: the transaction and what it is made of.  Runs in the executor."""
