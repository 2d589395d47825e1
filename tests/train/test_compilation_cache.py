"""Where compiled programs are kept. That they really are is part of `test_resume.py`, over processes."""

import jax
import platformdirs
import pytest

from acenode.datasets.files import cache_folder
from acenode.folders import user_cache
from acenode.train import enable_compilation_cache

SWITCH = "ACENODE_COMPILATION_CACHE"


def folder() -> str | None:
    return jax.config.jax_compilation_cache_dir


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    before = folder()
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv(SWITCH, raising=False)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(SWITCH, str(tmp_path / "a" / "b"))
    enable_compilation_cache()
    assert folder() == str(tmp_path / "a" / "b") and (tmp_path / "a" / "b").is_dir()


def test_the_users_cache_folder_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name, appauthor: str(tmp_path / name))
    enable_compilation_cache()
    assert folder() == str(tmp_path / "acenode" / "compiled") and (tmp_path / "acenode" / "compiled").is_dir()


def test_off_turns_it_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    enable_compilation_cache()
    assert folder() is None


def test_a_folder_that_is_already_set_stays(monkeypatch, tmp_path):
    monkeypatch.setenv(SWITCH, str(tmp_path / "other"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    enable_compilation_cache()
    assert folder() == str(tmp_path / "mine") and not (tmp_path / "other").exists()


def test_a_folder_that_cannot_be_made_costs_time_and_not_the_run(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(SWITCH, str(tmp_path / "file" / "compiled"))
    enable_compilation_cache()
    assert folder() is None


def test_without_a_home_there_is_no_cache_and_data_are_kept_with_temporary_files(monkeypatch, tmp_path):
    def homeless(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", homeless)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    enable_compilation_cache()
    assert folder() is None and user_cache() is None
    assert cache_folder() == tmp_path / "acenode" / "data"
