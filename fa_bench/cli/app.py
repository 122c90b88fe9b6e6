"""The ``fa-bench`` command: registers the commands, and turns known errors into a sentence and an exit code.

Exit codes: 0 done; 1 a check, comparison or row failed; 2 usage; 3 the device asked for is not here; 130 interrupted.
Nothing heavy is imported here or at the top of a command's module, so that ``--help`` is immediate.
"""

from __future__ import annotations

import errno
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fa_bench import __version__
from fa_bench.cli import output
from fa_bench.cli.baseline import baseline
from fa_bench.cli.cache import cache
from fa_bench.cli.check import check
from fa_bench.cli.claims import claims
from fa_bench.cli.compare import compare
from fa_bench.cli.diff import diff
from fa_bench.cli.doctor import doctor
from fa_bench.cli.gpus import gpus
from fa_bench.cli.io_model import io_model
from fa_bench.cli.kernels import kernels
from fa_bench.cli.ladder import ladder
from fa_bench.cli.mutate import mutate
from fa_bench.cli.options import AxesCommand
from fa_bench.cli.predict import predict
from fa_bench.cli.profile import profile
from fa_bench.cli.report import report
from fa_bench.cli.sweep import sweep
from fa_bench.cli.trace import trace
from fa_bench.cli.tune import tune
from fa_bench.cli.validate import validate
from fa_bench.errors import FaBenchError, UsageError, nearest

INTERRUPTED: Final = 130

#: typer carries click inside itself or depends on it, by version; both export BadParameter, click's bases with it.
_CLICK_ERROR: Final = cast("type[Exception]", typer.BadParameter.__mro__[2])


class _Commands(TyperGroup):
    """The command group, with our words for a command that doesn't exist."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise UsageError(f"There is no command {args[0]!r}.", hint=nearest(args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="fa-bench",
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        output.print_version(__version__)
        raise typer.Exit


def fa_bench(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Benchmark attention kernels and profile their IO.

    With an NVIDIA GPU the kernels are timed. Without one the same kernels run as PTX on the CPU, where every byte
    that they ask of memory is counted; predictions stand beside both.
    """
    if ctx.invoked_subcommand is None:
        output.print_help(ctx)


def _help(command: Callable[..., object]) -> str:
    """A command's docstring with its paragraphs unwrapped, so that they fill the terminal's width."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


_COMMANDS: Final[tuple[tuple[Callable[..., int | None], type[TyperCommand]], ...]] = (
    (sweep, AxesCommand),
    (io_model, AxesCommand),
    (check, AxesCommand),
    (compare, TyperCommand),
    (baseline, TyperCommand),
    (report, TyperCommand),
    (profile, TyperCommand),
    (diff, TyperCommand),
    (validate, TyperCommand),
    (claims, TyperCommand),
    (trace, TyperCommand),
    (tune, AxesCommand),
    (predict, AxesCommand),
    (mutate, AxesCommand),
    (gpus, TyperCommand),
    (kernels, TyperCommand),
    (ladder, TyperCommand),
    (doctor, TyperCommand),
    (cache, TyperCommand),
)

app.callback(invoke_without_command=True, help=_help(fa_bench))(fa_bench)
for _command, _class in _COMMANDS:
    app.command(cls=_class, help=_help(_command))(_command)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (``sys.argv[1:]`` if None) and return its exit code.

    An exception that is no known error leaves as it is: it is a defect, and its traceback is wanted.
    """
    output.make_streams_safe()
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        result = get_command(app).main(args=args, prog_name="fa-bench", standalone_mode=False, obj=args)
    except FaBenchError as error:
        output.print_error(error.message, error.hint)
        return error.exit_code
    except _CLICK_ERROR as error:
        output.print_error(*_in_our_words(error))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):  # by version, typer turns the first into the second or into a code
        return INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        output.print_error("No space is left on the device that is written to.", "")
        return FaBenchError.exit_code
    return int(result or 0)


def _in_our_words(error: BaseException) -> tuple[str, str]:
    """One sentence and a next step for an error that click found in the arguments."""
    context = getattr(error, "ctx", None)
    help_hint = f"See '{context.command_path} --help'." if context is not None else ""
    option = getattr(error, "option_name", None)
    if option is not None and "No such option" in str(error):
        known = [name for parameter in context.command.params for name in parameter.opts] if context else []
        return f"There is no option {option!r}.", f"{nearest(option, known)} {help_hint}".strip()
    # Newer typer checks values with pydantic, which puts its own words before ours.
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # type: ignore[attr-defined]  # click's
    return message if message.endswith(".") else f"{message}.", help_hint


def main() -> None:
    """Entry point of the ``fa-bench`` script."""
    sys.exit(run())
