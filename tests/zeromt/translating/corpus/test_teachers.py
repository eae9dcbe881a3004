"""The programs of examples/teachers: a server's client, whose key is nowhere but in the environment; an export."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import REPO, Start, contents, zeromt
from tests.zeromt.translating.corpus.conftest import Translate

TEACHERS = REPO / "examples" / "teachers"
KEY = "sk-secret-of-this-test"


class Server(ThreadingHTTPServer):
    """Answers as OpenAI's API does; every third request finds it busy."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str | None]] = []
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Server
    codes: ClassVar[list[int]] = [429, 503]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append((self.path, self.headers["Authorization"]))
            number = len(self.server.seen)
        if number % 3 == 0:
            self.send_response(self.codes[number % 2])
            self.end_headers()
            return
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        texts = [f" {prompt.rpartition(': ')[2].upper()} {i}\n" for i in range(body["n"])]
        choices = [{"text": text} if "prompt" in body else {"message": {"content": text}} for text in texts]
        reply = {"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        thread = threading.Thread(target=started.serve_forever, daemon=True)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.mark.parametrize("way", [[], ["--completion"]], ids=["chat", "completion"])
def test_a_server_and_its_key(
    way: list[str], server: Server, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "prompt").write_text("Translate to English: {source}\n")
    (tmp_path / "in").write_text("".join(f"zeile {number}\n" for number in range(30)))
    url = f"http://127.0.0.1:{server.server_port}/v1"
    given = ["--url", url, "--model", "m", "--prompt", "prompt", "--pause", "0.01", "--price", "1", "2", *way]
    program = [sys.executable, str(TEACHERS / "openai_client.py"), *given]
    (tmp_path / "engine.yaml").write_text(json.dumps({"kind": "command", "command": program, "prompt": "prompt"}))
    words = ("translate", "--engine", "engine.yaml", "-i", "in", "-o", "out", "--candidates", "2")
    said = ""
    for more in (["--part", "1/1"], ["--merge"]):
        done = start(*zeromt(*words, *more)).finish()
        assert done.code == 0, done.err
        said += done.out + done.err
    texts = (tmp_path / "out" / "translations.txt").read_text().splitlines()
    assert texts == [f"ZEILE {number} 0" for number in range(30)]
    assert {key for _, key in server.seen} == {f"Bearer {KEY}"}
    assert {path for path, _ in server.seen} == {"/v1/completions" if way else "/v1/chat/completions"}
    assert "openai_client: 90 + 60 tokens, cost 0.0002, " in said
    assert KEY not in said
    import zstandard

    for name, content in contents(tmp_path / "out").items():
        plain = zstandard.ZstdDecompressor().decompressobj().decompress(content) if name.endswith(".zst") else content
        assert KEY.encode() not in plain, name


def test_an_export_for_transformers(translate: Translate, run: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.small import FILES
    from zeromt.cli.main import main

    assert main(["export", run, "--format", "huggingface", "-o", "exported"]) == 0
    lines = (FILES / "corpus" / "v.en").read_text().splitlines()[:6]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    program = [sys.executable, str(TEACHERS / "transformers_client.py"), "exported", "--max-length", "24"]
    (tmp_path / "engine.yaml").write_text(json.dumps({"kind": "command", "command": program}))
    words = ("--engine", "engine.yaml", "-i", "in", "-o", "out")
    assert translate(*words, "--part", "1/1") == 0
    assert translate(*words, "--merge") == 0
    texts = (tmp_path / "out" / "translations.txt").read_text().split("\n")[:-1]
    assert len(texts) == 6
    assert all(texts)
