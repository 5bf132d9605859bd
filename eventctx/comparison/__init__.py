"""What-if: policies driven over recorded transcripts, and how they compare."""
