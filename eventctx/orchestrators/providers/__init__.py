"""Models behind APIs: Anthropic, OpenAI, and Amplifier's provider modules."""
