"""The worker that runs attempts: supervisor, slots, leases, outbox."""
