"""Reads from an HTTP server no more than was asked for, and follows redirects only to where its address may lead.

fsspec reads whatever a server sends, and aiohttp follows a redirect to any address: an endless answer would fill memory
or disk, and a server on the internet could have the caller ask services of his own network.
"""

import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from data_pipeline.errors import ReadError

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_CHUNK_BYTES = 1 << 20
_MOST_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)


async def read(
    files: Any, url: str, take: Callable[[bytes], object], *, start: int | None, end: int, most: int
) -> None:
    """Read a file, or a range of it, in pieces.

    Args:
        files: fsspec's file system for HTTP; its session has time-outs, proxies and passwords.
        url: of the file.
        take: called with each piece.
        start: first byte of the range; None for the whole file.
        end: behind the last byte; of a whole file ignored.
        most: more bytes than this are not read.

    Raises:
        ReadError: more came, or a redirect leads where it must not.
        FileNotFoundError: there is no such file.
        aiohttp.ClientError: the server, or the connection, failed.
    """
    headers = {} if start is None else {"Range": f"bytes={start}-{end - 1}"}
    async with _answer(files, url, headers) as response:
        if response.status == 404:
            raise FileNotFoundError(url)
        response.raise_for_status()
        left = most
        async for piece in response.content.iter_chunked(_CHUNK_BYTES):
            left -= len(piece)
            if left < 0:
                raise ReadError(f"more than {most} bytes came, the most that are read")
            take(piece)


@contextlib.asynccontextmanager
async def _answer(files: Any, url: str, headers: dict[str, str]) -> AsyncIterator["ClientResponse"]:
    """The answer at the end of all redirects."""
    session = await files.set_session()
    was_private = None
    for _ in range(_MOST_REDIRECTS + 1):
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status not in _REDIRECTS:
                yield response
                return
            target = urljoin(url, response.headers.get("Location", ""))
        if was_private is None:
            was_private = await _is_private(files, url)
        if urlsplit(target).scheme not in ("http", "https"):
            raise ReadError(f"redirected to {target!r}; allowed is http or https")
        if not was_private and await _is_private(files, target):
            raise ReadError(f"redirected to {target!r}, an address of this machine or network; name it yourself")
        url = target
    raise ReadError(f"redirected more than {_MOST_REDIRECTS} times")


async def _is_private(files: Any, url: str) -> bool:
    """Whether a URL's host is this machine or in a private network; a proxy decides that for what goes through it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return False
    try:
        addresses = await files.loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ReadError(f"{host!r} has no address: {error.strerror}") from error
    return any(not ipaddress.ip_address(address[0].partition("%")[0]).is_global for *_, address in addresses)
