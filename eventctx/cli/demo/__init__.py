"""The demonstration: a recorded session, and playing one live through the engine."""
