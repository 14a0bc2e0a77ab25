"""Typed model of Conductor's workflow JSON.  All parsing happens here, without I/O."""
