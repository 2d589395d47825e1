"""Data files: where they are looked for, downloads, checksums, and the errors."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from acenode.datasets import files
from acenode.datasets.files import DataCorrupted, DataNotFound, Remote, find, look

CONTENT = b"all the data there are\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
NOWHERE = "http://127.0.0.1:9/x.txt"
OFFICIAL = Remote("x.txt", NOWHERE, sha256=SHA256)


@contextmanager
def serving(content: dict[str, bytes], promise: int = 0):
    """A web server of `content`; `promise` bytes more are announced than are sent. Yields its address and requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            body = content.get(self.path.strip("/"))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"") + promise))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no folder of the user's."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    return tmp_path / "cache"


def put(path, content=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def kept(cache):
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def test_cache_folder_is_the_users(monkeypatch):
    monkeypatch.undo()
    assert files.cache_folder().name == "data"
    assert "acenode" in files.cache_folder().parts


@pytest.mark.parametrize("inside", ["weather", "."])
def test_given_folder_comes_first(tmp_path, monkeypatch, cache, inside):
    given = put(tmp_path / "given" / inside / "x.txt")
    put(tmp_path / "env" / "weather" / "x.txt")
    put(cache / "weather" / "x.txt")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "env"))
    assert find("weather", OFFICIAL, tmp_path / "given") == given


def test_environment_comes_before_the_cache(tmp_path, monkeypatch, cache):
    own = put(tmp_path / "env" / "weather" / "x.txt")
    put(cache / "weather" / "x.txt")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "env"))
    assert find("weather", OFFICIAL) == own
    assert look("weather", "x.txt") == own
    assert look("weather", "y.txt") is None


def test_users_own_copy_need_not_be_the_official_one(tmp_path):
    own = put(tmp_path / "given" / "x.txt", b"repacked")
    assert find("weather", OFFICIAL, tmp_path / "given") == own


@pytest.mark.parametrize("checksum", [{"sha256": SHA256}, {"md5": MD5}, {"sha256": SHA256.upper()}, {}])
def test_cached_file_is_used(cache, checksum):
    path = put(cache / "weather" / "x.txt")
    assert find("weather", Remote("x.txt", NOWHERE, **checksum)) == path


def test_corrupted_cached_file_is_refused(cache):
    path = put(cache / "weather" / "x.txt", CONTENT[:-1])
    found = hashlib.sha256(CONTENT[:-1]).hexdigest()
    with pytest.raises(DataCorrupted) as caught:
        find("weather", OFFICIAL)
    for part in (str(path), "weather", SHA256, found, "Delete it"):
        assert part in str(caught.value)


def test_missing_file_says_what_where_and_how(tmp_path, monkeypatch, cache):
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "env"))
    with pytest.raises(DataNotFound) as caught:
        find("weather", OFFICIAL, tmp_path / "given")
    for part in (
        "x.txt",
        "weather",
        str(tmp_path / "given"),
        str(tmp_path / "env"),
        str(cache),
        f"by hand: download {NOWHERE}",
    ):
        assert part in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)


def test_missing_file_mentions_the_unset_variable():
    with pytest.raises(DataNotFound, match="ACENODE_DATA is not set"):
        find("weather", OFFICIAL)


def test_given_folder_must_exist(tmp_path):
    with pytest.raises(DataNotFound, match="nowhere' is not a folder"):
        find("weather", OFFICIAL, tmp_path / "nowhere")


@pytest.mark.parametrize("checksum", [{"sha256": SHA256}, {"md5": MD5}, {}])
def test_download_once(cache, checksum):
    with serving({"x.txt": CONTENT}) as (url, requests):
        first = find("weather", Remote("sub/x.txt", url + "x.txt", **checksum))
        again = find("weather", Remote("sub/x.txt", url + "x.txt", **checksum))
    assert first == again == cache / "weather" / "sub" / "x.txt"
    assert first.read_bytes() == CONTENT
    assert requests == ["/x.txt"]
    assert kept(cache) == ["weather/sub/x.txt"]


@pytest.mark.parametrize(("algorithm", "expected"), [("sha256", SHA256), ("md5", MD5)])
def test_wrong_download_is_not_kept(cache, algorithm, expected):
    with serving({"x.txt": b"something else"}) as (url, _), pytest.raises(DataCorrupted) as caught:
        find("weather", Remote("x.txt", url + "x.txt", **{algorithm: expected}))
    found = hashlib.new(algorithm, b"something else").hexdigest()
    for part in ("x.txt", url, expected, found, "Try again"):
        assert part in str(caught.value)
    assert kept(cache) == []


def test_interrupted_download_is_not_kept(cache):
    with serving({"x.txt": CONTENT}, promise=10) as (url, _), pytest.raises(DataNotFound, match="failed"):
        find("weather", Remote("x.txt", url + "x.txt"))
    assert kept(cache) == []


def test_absent_page_and_absent_server(cache):
    with serving({}) as (url, _), pytest.raises(DataNotFound, match=r"404(.|\n)*by hand"):
        find("weather", Remote("x.txt", url + "x.txt", sha256=SHA256))
    with pytest.raises(DataNotFound, match=r"The download from http://127\.0\.0\.1:9/x\.txt failed"):
        find("weather", OFFICIAL)
    assert kept(cache) == []
