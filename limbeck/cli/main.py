"""The `limbeck` command: one file per subcommand, imported when it is called."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import warnings
from typing import NoReturn

import typer

from limbeck.cli.verbs import GroupedCommands, first_steps, register_verbs
from limbeck.errors import LimbeckError
from limbeck.printable import printable_streams

ABOUT = "Turn a slow, accurate text matcher into the fastest student that still does its job, and run it."
app = typer.Typer(
    name="limbeck",
    cls=GroupedCommands,
    help=ABOUT,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130
PLACES = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another file system",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close some programs, or raise the system's limit on open files",
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "choose another place",
    errno.EISDIR: "name a file",
    errno.EEXIST: "choose another place",
    errno.ELOOP: "remove the circular symbolic links",
    errno.ENXIO: "name a regular file or folder",
    errno.ENODEV: "name a regular file or folder",
    errno.EINVAL: "name a regular file or folder",
    errno.EIO: "check the disk and the file",
    errno.ESRCH: "name a regular file or folder",
}

register_verbs(app)


@app.callback(invoke_without_command=True)
def limbeck(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
    plugin: list[str] = typer.Option(
        [], "--plugin", help="A Python file, or a module, with your own objectives, architectures or analyses."
    ),
) -> None:
    if plugin:
        from limbeck.plugins import name_plugins

        name_plugins(plugin)
    if version:
        from limbeck import __version__

        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(first_steps(ABOUT))


def main() -> None:
    """Run the command. A user's mistake prints one line and exits with code 2, without a traceback."""
    warnings.filterwarnings("ignore")
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal cannot show are escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with printable_streams():
        _run()


def _run() -> None:
    try:
        code = app(standalone_mode=False)
    except LimbeckError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except RecursionError:
        _fail("a file is nested too deeply to be read; check the files and folders that the command names")
    except OSError as error:
        if "No usable temporary directory" in str(error):  # libraries need one when they are imported
            _fail("cannot write any file, not even a temporary one; free space, or raise the limit (ulimit -f)")
        if error.errno not in PLACES:
            raise
        _fail(f"{error.filename or 'a file'}: {error.strerror}; {PLACES[error.errno]}")
    except Exception as error:
        _usage(error)
    else:
        if code == INTERRUPTED:
            _interrupted()
        sys.exit(code or 0)


def _usage(error: Exception) -> NoReturn:
    """Errors of the argument parser have a message and an exit code. Anything else is a bug and keeps its traceback."""
    if not hasattr(error, "exit_code"):
        raise error
    if not hasattr(error, "format_message"):
        sys.exit(error.exit_code)
    said = error.format_message().rstrip(".")
    end = "" if said.endswith("?") else "."
    _fail(f"{said}{end} `limbeck --help` and `limbeck COMMAND --help` list the options.")


def _interrupted() -> NoReturn:
    print("limbeck: interrupted; run the same command again to resume", file=sys.stderr)
    sys.exit(INTERRUPTED)


def _fail(message: str) -> NoReturn:
    print(f"limbeck: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
