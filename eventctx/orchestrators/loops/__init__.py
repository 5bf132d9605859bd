"""The loops that run a turn, and the modules by which Amplifier mounts them."""
