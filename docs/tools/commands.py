"""The reference of the command line, from the commands themselves."""

from pathlib import Path
from typing import Any

from . import put, table


def write(docs: Path) -> None:
    """Write `api/commands.md`."""
    import typer.main

    from acenode.cli.main import app

    root: Any = typer.main.get_command(app)
    parts = ["# Command line", "", root.help, "", "`acenode --help` and `acenode COMMAND --help` say the same.", ""]
    put(docs / "api" / "commands.md", "\n".join([*parts, *_commands(root, "acenode")]))


def _commands(group: Any, path: str) -> list[str]:
    lines: list[str] = []
    for name, command in group.commands.items():
        full = f"{path} {name}"
        if hasattr(command, "commands"):
            lines += _commands(command, full)
            continue
        needed = [_called(each) for each in command.params if each.required]
        usage = " ".join([full, *needed, "[options]"])
        lines += [f"## {full}", "", " ".join((command.help or "").split()), "", "```", usage, "```", ""]
        rows = [[f"`{', '.join(_names(p))}`", _words(p)] for p in command.params if p.name != "help"]
        lines += table(["option", "what it says"], rows) if rows else []
    return lines


def _names(parameter: Any) -> list[str]:
    option = parameter.param_type_name == "option"
    return [*parameter.opts, *parameter.secondary_opts] if option else [parameter.name.upper()]


def _called(parameter: Any) -> str:
    option = parameter.param_type_name == "option"
    return f"{parameter.opts[0]} {parameter.name.upper()}" if option else parameter.name.upper()


def _words(parameter: Any) -> str:
    words, default = getattr(parameter, "help", None) or "", parameter.default
    if parameter.param_type_name == "option" and default not in (None, False, ()) and not callable(default):
        words += f" Default: `{getattr(default, 'value', default)}`."
    required = " Required." if parameter.param_type_name == "option" and parameter.required else ""
    return f"{words}{required}".replace("|", "\\|")
