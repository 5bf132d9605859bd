"""The context contract as checks of any Amplifier context module, ours or another's."""
