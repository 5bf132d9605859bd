"""The loops that run a turn, and the modules that Amplifier mounts them by."""
