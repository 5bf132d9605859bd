"""Models of APIs: Anthropic, OpenAI, and Amplifier's provider modules."""
