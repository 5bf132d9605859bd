"""What a host's hooks are told, and what they answer."""
