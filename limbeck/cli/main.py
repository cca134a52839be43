"""The `limbeck` command: one file a verb, imported when it is called."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from importlib import import_module

import typer

from limbeck.errors import LimbeckError

app = typer.Typer(
    name="limbeck",
    help="Turn a slow, accurate text matcher into the fastest student that still does its job, and run it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for verb in ("demo", "recipes", "distill", "annotate", "evaluate", "report"):
    import_module(f"limbeck.cli.{verb}").register(app)


@app.callback(invoke_without_command=True)
def limbeck(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    if version:
        from limbeck import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2, never a traceback."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except LimbeckError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        _fail(f"{error.filename or 'a file'}: {error.strerror}; free some space or choose another place")


def _fail(message: str) -> None:
    print(f"limbeck: {message}", file=sys.stderr)
    sys.exit(2)
