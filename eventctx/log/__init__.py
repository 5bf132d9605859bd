"""The log: the catalogue of events, their envelope and digests, and the protocol of a store."""
