"""Tasks of Cline and Roo Code, and sessions of Cline: messages, and the screen next to them."""
