"""Questions to a log: requests, transcripts, audit, why, verify, spans, export."""
