"""Chats of Gemini CLI and Qwen Code: their records, and the contents of Google's API in them."""
