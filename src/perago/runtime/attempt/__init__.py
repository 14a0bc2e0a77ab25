"""Runs one attempt in an executor: the transaction, and the parts that it consists of."""
