"""The lowest part of a JetStream store: addresses, the connection, and what messages mean."""
