"""`python -m headrace`: the command line."""

from headrace.cli.main import app

app(prog_name="headrace")
