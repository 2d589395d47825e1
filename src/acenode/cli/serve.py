"""The command `acenode serve`."""

import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from .terminal import checked, fail


def serve(
    folder: Annotated[Path, typer.Argument(help="A folder made by `acenode train`.")],
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    state: Annotated[
        Path | None, typer.Option(help="File for the states of followed series; beside the folder if not given.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="ACENODE_TOKEN", help="Requests need this token (Authorization: Bearer).")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="The longest body of a request, in KiB.")] = 1024,
) -> None:
    """Answer predictions, updates and forecasts of a saved model over HTTP, in JSON."""
    try:
        import uvicorn

        from ..serve.app import create_app
    except ImportError:
        fail("serve needs FastAPI and uvicorn; install them with: pip install 'acenode[serve]'")
    token = token or None
    app = checked(lambda: create_app(folder, state, token=token, most_bytes=1024 * max_body))
    if token is None and not _is_local(host):
        typer.echo(f"acenode: anyone who reaches {host} may use this service; give a --token.", err=True)
    listening = _listen(host, port)
    address, taken = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, proxy_headers=False, server_header=False, limit_concurrency=2000
    )
    typer.echo(f"serving {folder} at http://{shown}:{taken}; its page is http://{shown}:{taken}/docs")
    uvicorn.Server(config).run(sockets=[listening])


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        fail(f"cannot listen at {host}, port {port}: {error.strerror or error}. Choose another --host or --port.")
