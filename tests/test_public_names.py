"""What type-checks exists at run time, and the reverse, in every package."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import acenode

ROOT = Path(acenode.__file__).parent
PACKAGES = [".".join(init.parent.relative_to(ROOT.parent).parts) for init in sorted(ROOT.rglob("__init__.py"))]


def exported(name: str) -> set[str]:
    """The names that a type checker sees as public: `from ... import name as name`, and what is assigned."""
    tree = ast.parse(Path(importlib.import_module(name).__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any(alias.name == "*" for node in imports for alias in node.names), "a star import"
    again = {alias.asname for node in imports for alias in node.names if alias.asname == alias.name}
    assigned = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    return again | {each for each in assigned if each == "__version__" or not each.startswith("_")}


def present(name: str) -> set[str]:
    """The public names that there are at run time; a module that was merely imported is none."""
    package = importlib.import_module(name)
    if hasattr(package, "__all__"):
        return set(package.__all__)
    return {
        each for each, value in vars(package).items() if not each.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_at_run_time_what_type_checks(name):
    package = importlib.import_module(name)
    for each in exported(name):
        assert getattr(package, each) is not None
    assert exported(name) == present(name)


def test_the_top_level_lists_what_it_has_and_refuses_the_rest():
    assert set(dir(acenode)) == set(acenode.__all__) and len(acenode.__all__) < 35
    with pytest.raises(AttributeError, match="nonsense"):
        acenode.nonsense  # noqa: B018


def test_no_name_of_the_estimators_is_a_module_and_something_else():
    modules = {path.stem for path in (ROOT / "estimators").glob("*.py")}
    assert not modules & exported("acenode.estimators")


def test_importing_loads_nothing_heavy():
    code = "import sys, acenode; print([m for m in ('jax', 'numpy', 'sklearn', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
