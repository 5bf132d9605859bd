"""Recorded HTTP of provider SDKs: cassettes as sessions."""
