"""The API reference: a page for each package with all its public names, from their docstrings, which are Markdown."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from . import put

PACKAGES = ("ode", "series", "models", "tasks", "train", "estimators", "datasets", "report", "tuning")
_MODULES = re.compile(r"\b(?!pathlib\.)(?:[a-z_]+\.)+(?=[A-Za-z_])")  # before the name of a type; ours is another Path


def packages() -> list[str]:
    """Every package that exports names, the nested ones too."""
    import acenode

    root = Path(acenode.__file__).parent
    found = [".".join(init.parent.relative_to(root.parent).parts) for init in sorted(root.rglob("__init__.py"))]
    return [name for name in found if name != "acenode" and public(importlib.import_module(name))]


def public(package: ModuleType) -> dict[str, Any]:
    """The public names of a package and what they are."""
    named = getattr(package, "__all__", None)
    if named is None:
        named = [n for n, v in vars(package).items() if not n.startswith("_") and not inspect.ismodule(v)]
    return {name: getattr(package, name) for name in named if name != "__version__"}


def undocumented() -> list[str]:
    """Public names without a docstring of their own."""
    missing = []
    for package in packages():
        for name, item in public(importlib.import_module(package)).items():
            inside = _of_module(item) if inspect.ismodule(item) else {}
            every = {f"{package}.{name}": item, **{f"{package}.{name}.{n}": v for n, v in inside.items()}}
            missing += [each for each, value in every.items() if not _doc(value)]
    return missing


def write(docs: Path) -> None:
    """Write `api/index.md` and a page for each package."""
    import acenode

    folder = docs / "api"
    places: dict[str, str] = {}  # of names that several packages have, the first is where it is described
    pages = {}
    for package in packages():
        pages[package] = _page(package, places)
    for name, text in pages.items():
        put(folder / f"{name}.md", text)
    top = public(acenode)
    lines = [f"| `acenode.{n}` | {_described(v, n, places)} |" for n, v in top.items() if not inspect.ismodule(v)]
    listed = [f"| [`{name}`]({name}.md) | {_first(importlib.import_module(name))} |" for name in pages]
    index = [
        "# API reference",
        "",
        "Most users need the names at the top. Everything else is in the packages.",
        "",
        "## `acenode`",
        "",
        *("| name | what it is |", "|---|---|", *lines, ""),
        "## The packages",
        "",
        *("| package | what it holds |", "|---|---|", *listed, ""),
        *("```{toctree}", ":hidden:", "", *pages, "commands", "```", ""),
    ]
    put(folder / "index.md", "\n".join(index))


def _page(package: str, places: dict[str, str]) -> str:
    module = importlib.import_module(package)
    parts = [f"# {package}", "", _doc(module), ""]
    for name, item in public(module).items():
        full = f"{package}.{name}"
        if inspect.ismodule(item):
            parts += [f"## {name}", "", _doc(item), ""]
            parts += [line for n, v in _of_module(item).items() for line in _entry(f"{full}.{n}", v)]
            continue
        key = _key(item, name)
        if key in places:
            parts += [f"`{name}` is described as {{py:obj}}`{places[key]}`.", ""]
            continue
        places[key] = full
        parts += [f"## {name}", "", *_entry(full, item)]
    return "\n".join(parts)


def _key(item: Any, name: str) -> str:
    return f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', name)}"


def _of_module(module: ModuleType) -> dict[str, Any]:
    """The classes and functions that a module defines."""
    return {
        name: item
        for name, item in vars(module).items()
        if not name.startswith("_")
        and getattr(item, "__module__", None) == module.__name__
        and (inspect.isclass(item) or callable(item))
    }


def _entry(full: str, item: Any) -> list[str]:
    """A name with its signature, its docstring, and its own methods that have one."""
    kind = "class" if inspect.isclass(item) else "function" if callable(item) else "data"
    lines = [f"::::{{py:{kind}}} {full}{_signature(item)}", "", _doc(item), ""]
    for name, member in vars(item).items() if kind == "class" else ():
        found = _method(item, name, member)
        if found is not None:
            lines += [f":::{{py:{found[0]}}} {name}{found[1]}", "", found[2], "", ":::", ""]
    return [*lines, "::::", ""]


def _method(owner: type, name: str, member: Any) -> tuple[str, str, str] | None:
    if name.startswith("_") and name != "__call__":
        return None
    if isinstance(member, property):
        doc = inspect.getdoc(member)
        return ("property", "", doc) if doc else None
    value = getattr(owner, name)
    if not callable(value) or inspect.isclass(value):
        return None
    doc = getattr(member, "__doc__", None) or getattr(getattr(member, "__func__", member), "__doc__", None)
    return ("method", _signature(value), inspect.cleandoc(doc)) if doc else None


def _signature(item: Any) -> str:
    if not callable(item):
        return ""
    try:
        found = inspect.signature(item)
    except (TypeError, ValueError):
        return "()"
    kept = [
        p.replace(annotation=_named(p.annotation), default=_default(p.default))
        for p in found.parameters.values()
        if p.name != "self"
    ]
    gives = found.return_annotation
    gives = inspect.Signature.empty if inspect.isclass(item) or gives in (None, gives is None) else _named(gives)
    return str(found.replace(parameters=kept, return_annotation=gives)).replace("\n", " ")


class _Word(str):
    """Text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _named(annotation: Any) -> Any:
    """An annotation in short: without modules."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _Word(_MODULES.sub("", text.replace("NoneType", "None")))


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or isinstance(value, str | int | float | bool | tuple | type(None)):
        return value
    return _Word(getattr(value, "__name__", None) or f"{type(value).__name__}()")


def _doc(item: Any) -> str:
    own = vars(item).get("__doc__") if inspect.isclass(item) else getattr(item, "__doc__", None)
    if not own or (inspect.isclass(item) and own.startswith(f"{item.__name__}(")):  # what a dataclass makes up
        return ""
    if not (inspect.isclass(item) or inspect.isroutine(item) or inspect.ismodule(item) or "acenode" in str(type(item))):
        return f"A `{type(item).__name__}`."
    source = getattr(item, "__module__", None) or item.__name__
    if not source.startswith("acenode"):  # another library's, whose docstring is no Markdown
        return f"{inspect.cleandoc(own).splitlines()[0]} From `{source}`."
    return inspect.cleandoc(own)


def _first(item: Any) -> str:
    """The first sentence of a docstring."""
    text = " ".join(_doc(item).split("\n\n")[0].split())
    return text.replace("|", "\\|")


def _described(item: Any, name: str, places: dict[str, str]) -> str:
    full = places.get(_key(item, name))
    return f"{_first(item)} {{py:obj}}`more <{full}>`" if full else _first(item)
