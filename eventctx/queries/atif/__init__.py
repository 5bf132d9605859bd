"""Export of sessions as ATIF 1.8 trajectories (Harbor's Agent Trajectory Interchange Format)."""
