"""Why a message is in a view, for every screen."""
