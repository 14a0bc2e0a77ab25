"""This process: how it is set up, and how its state is restored after a body."""
