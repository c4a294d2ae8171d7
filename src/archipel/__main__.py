"""`python -m archipel` is the command line."""

from archipel.cli import main

main()
