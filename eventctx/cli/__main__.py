"""``python -m eventctx.cli``."""

from eventctx.cli.start import main

if __name__ == "__main__":
    main()
