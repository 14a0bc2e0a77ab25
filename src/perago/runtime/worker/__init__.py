"""The worker around attempts: supervisor, slots, leases, outbox."""
