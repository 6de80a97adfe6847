"""`python -m kvtui` is the console script `kvtui`."""

from kvtui.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
