"""What tests of policies, stores, orchestrators and context modules need."""
