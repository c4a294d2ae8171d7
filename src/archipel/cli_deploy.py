"""The commands of a deployment."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
