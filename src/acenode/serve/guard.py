"""What stands before the application: the bound on a body, and the token."""

import json
import secrets
from typing import Any

OPEN = ("/health",)  # answers without a token


class Guard:
    """ASGI middleware: refuses a body over `most` bytes (413) and a request without the token (401)."""

    def __init__(self, app: Any, most: int, token: str | None = None):
        self.app, self.most, self.token = app, most, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.token is not None and scope["path"] not in OPEN and not self._allowed(headers):
            words = "Give the token of this service: Authorization: Bearer TOKEN."
            await _refuse(send, 401, words, [(b"www-authenticate", b"Bearer")])
            return
        body = await self._body(headers, receive)
        if body is None:
            await _refuse(send, 413, f"The body is longer than {self.most:,} bytes; send fewer rows at a time.")
            return
        given = False

        async def replay() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    def _allowed(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        assert self.token is not None
        return scheme.lower() == b"bearer" and secrets.compare_digest(token.strip(), self.token.encode())

    async def _body(self, headers: dict[bytes, bytes], receive: Any) -> bytes | None:
        """The whole body; `None` where it is too long."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most:
            return None
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            part = message.get("body", b"")
            size += len(part)
            if size > self.most:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


async def _refuse(send: Any, status: int, words: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    content = json.dumps({"error": words}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    # What is left of the body is not read, so this connection is of no more use.
    headers += [(b"connection", b"close"), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
