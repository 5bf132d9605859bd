"""What happened: the catalogue of events, their envelope and digests, and the store's protocol."""
