"""ATIF, the Agent Trajectory Interchange Format of Harbor."""
