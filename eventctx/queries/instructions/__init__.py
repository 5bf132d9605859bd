"""The ledger of a person's demands: where each stood in every request."""
