"""The past of a session without a fold from zero: key frames of its timeline."""
