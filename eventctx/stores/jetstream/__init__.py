"""Streams of a replicated NATS JetStream cluster as a store."""
