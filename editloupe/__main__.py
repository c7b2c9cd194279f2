"""`python -m editloupe` is `editloupe`."""

from editloupe.cli import main

if __name__ == "__main__":
    main()
