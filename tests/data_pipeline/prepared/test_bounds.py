"""What a server may send: no more than was asked for, and from nowhere else than its own address allows."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from configs import StreamSection, UserError
from data_pipeline.errors import DataError
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.prepared.conftest import Serve, changed, content

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def answer() -> Iterator[Callable[[Answer], str]]:
    """Starts a server with an answer of its own; returns its URL."""
    servers = []

    def start(how: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                how(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


class Sent:
    """Answers without an end, and how much of them went out."""

    def __init__(self, begin: bytes = b"") -> None:
        self.begin = begin
        self.bytes = 0

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            request.wfile.write(self.begin)
            while True:
                request.wfile.write(b" " * (1 << 20))
                self.bytes += 1 << 20
        except OSError:
            pass


def test_index_without_an_end(answer: Callable[[Answer], str], section: StreamSection) -> None:
    sent = Sent(b'{"')
    url = answer(sent)
    with pytest.raises(UserError) as caught:
        Dataset.load(url, changed(section, retries=0))
    assert str(caught.value) == f"dataset: {url}/index.json: more than {1 << 26} bytes came, the most that are read"
    assert sent.bytes < 3 << 26


@pytest.mark.parametrize("file", ["lengths.npy", "a shard"])
def test_file_without_an_end(
    file: str, answer: Callable[[Answer], str], small: Dataset, section: StreamSection
) -> None:
    sent = Sent()
    name = small.index.shards[0].file if file == "a shard" else file

    def how(request: BaseHTTPRequestHandler) -> None:
        path = small.folder / request.path.lstrip("/")
        if path.name == name:
            sent(request)
            return
        request.send_response(200)
        request.end_headers()
        request.wfile.write(path.read_bytes())

    url = answer(how)
    with pytest.raises((UserError, DataError), match=rf"{name}: .*more than \d+ bytes came, the most that are read"):
        content(Dataset.load(url, changed(section, retries=0)))
    assert sent.bytes < 64 << 20
    assert sum(path.stat().st_size for path in Path(section.cache).rglob("*")) < 1 << 20


def test_compressed_answer_is_not_expanded(
    answer: Callable[[Answer], str], small: Dataset, section: StreamSection
) -> None:
    """Few bytes may be gigabytes; what was asked for is not compressed."""

    def how(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.end_headers()
        request.wfile.write(gzip.compress((small.folder / request.path.lstrip("/")).read_bytes()))

    with pytest.raises(UserError, match=r"index\.json: "):
        Dataset.load(answer(how), changed(section, retries=0))


def redirect(target: Callable[[BaseHTTPRequestHandler], str]) -> Answer:
    def how(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", target(request))
        request.end_headers()

    return how


@pytest.mark.parametrize("ranges", [True, False])
def test_redirects_are_followed(
    ranges: bool, answer: Callable[[Answer], str], small: Dataset, section: StreamSection, serve: Serve
) -> None:
    there = serve(small.folder, ranges=ranges)
    url = answer(redirect(lambda request: f"{there.url}{request.path}"))
    assert content(Dataset.load(url, section)) == content(small)


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1", "itself"])
def test_redirects_elsewhere(where: str, answer: Callable[[Answer], str], section: StreamSection) -> None:
    url = answer(redirect(lambda request: request.path if where == "itself" else where))
    said = "redirected more than 10 times" if where == "itself" else f"redirected to '{where}'"
    with pytest.raises(UserError, match=f"dataset: {url}/index.json: {said}"):
        Dataset.load(url, changed(section, retries=0))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.7", "169.254.169.254", "[::1]", "printer.lan"])
def test_server_of_the_internet_leads_to_no_private_address(
    host: str, answer: Callable[[Answer], str], section: StreamSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first server's own address is taken for a public one: a test has none to listen at."""
    url = answer(redirect(lambda request: f"http://{host}:9/x"))
    real = socket.getaddrinfo
    first: list[str] = []

    def getaddrinfo(name: str, *arguments: object, **options: object) -> object:
        if name == "printer.lan":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.168.1.4", 0))]
        if name == "127.0.0.1" and not first:
            first.append(name)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 0))]
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(UserError) as caught:
        Dataset.load(url, changed(section, retries=0))
    assert str(caught.value) == (
        f"dataset: {url}/index.json: redirected to 'http://{host}:9/x', an address of this machine or network; "
        "name it yourself"
    )
