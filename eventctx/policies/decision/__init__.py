"""The decision of one compaction, as steps that ask for what they need."""
