"""What builds the pages that come from code, results and benchmarks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def put(path: Path, text: str) -> None:
    """Write only what changed, so that an unchanged page is not built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def plain(words: object) -> str:
    """Words that mean nothing to Markdown."""
    text = str(words)
    for sign in "\\|*_<>$`[]":
        text = text.replace(sign, f"\\{sign}")
    return text
