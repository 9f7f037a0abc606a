"""`python -m ragen_diag`."""

from ragen_diag.cli import main

main()
