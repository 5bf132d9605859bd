"""Settings of programs that run agents: what ``eventctx setup`` adds to them, and takes out."""
