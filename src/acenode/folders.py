"""Where acenode keeps files of its own."""

from pathlib import Path

import platformdirs


def user_cache() -> Path | None:
    """The user's folder for what can be made again; none for a user without a home."""
    try:
        folder = Path(platformdirs.user_cache_dir("acenode", appauthor=False))
    except RuntimeError:  # newer versions of platformdirs; older ones name a folder ~ in the working one
        return None
    return folder if folder.is_absolute() else None
