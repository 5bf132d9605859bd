"""``python -m eventctx``."""

from eventctx.cli.start import main

if __name__ == "__main__":
    main()
