"""The demonstration: a recorded session, played live through the engine."""
