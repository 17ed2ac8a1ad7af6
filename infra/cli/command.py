"""How a command is declared: its session, the options that all commands share, and what its errors end in.

Owns the one place where an error becomes a line and an exit code: 1 when the API refused or cannot be reached, 2 when
the command line or its surroundings are at fault.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, cast

import typer
from typer.core import TyperGroup

from infra.cli.errors import CliError
from infra.cli.output import Output
from infra.cli.target import Given

if TYPE_CHECKING:
    from infra.cli.client import Client


@dataclass(frozen=True, slots=True)
class Session:
    """What a command works with."""

    given: Given = field(default_factory=Given)
    output: Output = field(default_factory=Output)

    def api(self) -> Client:
        """A client of the HTTP API, to be closed.

        Raises:
            UsageError: It is not known where that is, there is nothing to sign requests with, or the API key is none.
        """
        from infra.cli.client import connect  # noqa: PLC0415 - httpx takes 0.2 s that help and errors need not cost

        return connect(self.given.api(), "execute-api", self.given.api_key)

    def replay(self) -> Client:
        """A client of the replay function, to be closed. Raises as `api`."""
        from infra.cli.client import connect  # noqa: PLC0415

        return connect(self.given.replay(), "lambda", self.given.api_key)

    def overridden(self, url: str | None, replay_url: str | None, api_key: str | None, *, as_json: bool) -> Session:
        """The same with what was given (again) behind the command's name."""
        given = Given(url or self.given.url, replay_url or self.given.replay_url, api_key or self.given.api_key)
        return Session(given, Output(as_json or self.output.as_json))


# The shared options go before the command's name, where they are explained, or behind it.
_SHARED = {
    "url": (Annotated[str | None, typer.Option("--url", hidden=True)], None),
    "replay_url": (Annotated[str | None, typer.Option("--replay-url", hidden=True)], None),
    "api_key": (Annotated[str | None, typer.Option("--api-key", hidden=True)], None),
    "as_json": (Annotated[bool, typer.Option("--json", help="Print JSON, one document a line; errors too.")], False),
}


def command[**P](
    app: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a function that takes a session, and arguments and options as typer declares them, as a command.

    Args:
        app: The app or group.
        name: The command's name.

    Returns:
        A decorator that gives the function back as it is.
    """

    def register(function: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
        def run(context: typer.Context, **values: Any) -> None:
            shared = {shared: values.pop(shared) for shared in _SHARED}
            session: Session = context.obj.overridden(**shared)
            try:
                cast(Callable[..., None], function)(session, **values)
            except CliError as error:
                session.output.error(error)
                raise typer.Exit(error.exit_code) from error

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [
            inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            *(
                inspect.Parameter(shared, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
                for shared, (annotation, default) in _SHARED.items()
            ),
        ]
        # typer reads the signature to find out what the command takes.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions may have one
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = function.__doc__
        app.command(name)(run)
        return function

    return register


class ListByDefault(TyperGroup):
    """A group of commands that means `list` when options follow its name, or nothing."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command's name where none is."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class StartByDefault(ListByDefault):
    """Such a group that means `start`."""

    default = "start"
