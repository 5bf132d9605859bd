"""``python -m eventctx.cli``."""

from eventctx.cli.main import main

if __name__ == "__main__":
    main()
