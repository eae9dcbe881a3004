"""A registry of small packages, served from a folder: pip finds there what it asks for, and nothing is of any size."""

import importlib.metadata
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

from installation.project import normalized


class _Handler(SimpleHTTPRequestHandler):
    """Lists folders, which is what pip reads (PEP 503), and notes what is asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class StubIndex:
    """The registry, at `url`; `torch_url` is torch's own, with a folder for each build."""

    def __init__(self, folder: Path, port: int, asked: list[str]) -> None:
        self.folder = folder
        self.url = f"http://localhost:{port}/simple"
        self.torch_url = f"http://localhost:{port}/torch"
        self.asked = asked
        """The paths of all requests."""

    def wheel(
        self,
        name: str,
        version: str,
        requires: tuple[str, ...] = (),
        files: Mapping[str, str | bytes] | None = None,
        *,
        tag: str = "py3-none-any",
        place: str = "simple",
    ) -> Path:
        """Add a wheel.

        Args:
            name: of the package.
            version: its version.
            requires: other packages.
            files: contents by path.
            tag: which Pythons and platforms it is for.
            place: the index that has it.
        """
        folder = self.folder / place / normalized(name)
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        info = {"METADATA": metadata, "WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n", "RECORD": ""}
        whole = {**(files or {}), **{f"{stem}.dist-info/{path}": text for path, text in info.items()}}
        path = folder / f"{stem}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for name_in_wheel, content in whole.items():
                wheel.writestr(name_in_wheel, content)
        return path

    def source(self, name: str, version: str, setup: str) -> None:
        """Add a package that has no wheel, with this setup.py."""
        folder = self.folder / "simple" / normalized(name)
        folder.mkdir(parents=True)
        with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
            for path, text in {"setup.py": setup, "PKG-INFO": f"Name: {name}\nVersion: {version}\n"}.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, BytesIO(text.encode()))

    def installed(self, name: str) -> None:
        """Add a package of this environment, as it is installed."""
        found = importlib.metadata.distribution(name)
        files = {
            str(path): Path(str(path.locate())).read_bytes()
            for path in found.files or ()
            if not path.parts[0].startswith(("..", f"{name}-")) and path.suffix != ".pyc"
        }
        entries = {f"{name}-{found.version}.dist-info/entry_points.txt": found.read_text("entry_points.txt") or ""}
        self.wheel(name, found.version, files={**files, **entries})


@contextmanager
def serve(folder: Path) -> Iterator[StubIndex]:
    """A registry without packages, while this goes on."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    server = ThreadingHTTPServer(("localhost", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield StubIndex(folder, server.server_port, asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
