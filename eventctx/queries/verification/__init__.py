"""The parts of a verification: findings, contents, snapshots, signatures, and the whole store."""
