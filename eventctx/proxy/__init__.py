"""A reverse proxy on this machine that records what a program asks its model."""
