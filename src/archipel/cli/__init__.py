"""The command line: each module has some commands."""

import os
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from archipel.cli import deploy, explain, model, privacy, run, sites, sweep
from archipel.cli.screen import end, errors
from archipel.errors import BadInput, Diverged, Missing, of_file
from archipel.loading import blamed

EXTRAS = {"scipy": "privacy", "dp_accounting": "privacy", "matplotlib": "figures"}  # what the core goes without


class Commands(TyperGroup):
    """Who presses Ctrl-C is answered; Typer ends without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            errors.print("Stopped.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for module in (privacy, run, deploy, sites, model, sweep, explain):
    for name, command in module.COMMANDS.items():
        app.command(name)(command)
for one in app.registered_commands:  # lines break where the terminal ends, not where the source did
    paragraphs = cleandoc(one.callback.__doc__ or "" if one.callback else "").split("\n\n")
    one.help = "\n\n".join(" ".join(text.split("\n")) for text in paragraphs)


def say_version(wanted: bool) -> None:
    if wanted:
        from archipel import __version__

        print(f"archipel {__version__}")
        raise typer.Exit


@app.callback()
def archipel(
    version: Annotated[bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Federated learning where the data lives. Start with: archipel run examples/flagship/pao-fed-c2.toml"""


def main() -> None:
    """Errors that people cause are sentences; they end with status 2."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # seeds run side by side: more threads would fight for the cores
    try:
        app()
    except (BadInput, Missing) as problem:
        end(str(problem), 2)
    except Diverged as problem:
        end(str(problem), 1)
    except ModuleNotFoundError as problem:
        extra = EXTRAS.get((problem.name or "").partition(".")[0])
        if extra is None:
            raise
        end(f"This needs {problem.name}: pip install 'archipel[{extra}]'.", 2)
    except MemoryError as problem:
        said = f" ({problem})" if str(problem) else ""
        end(f"This does not fit in memory{said}: fewer clients, features or samples would.", 2)
    except OSError as problem:  # a file or a folder, most often
        end(of_file(problem), 2)
    except Exception as problem:
        sentence = blamed(problem)
        if not sentence:
            raise
        end(sentence, 2)
