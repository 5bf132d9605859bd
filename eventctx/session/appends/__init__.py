"""The parts of the append queue."""
