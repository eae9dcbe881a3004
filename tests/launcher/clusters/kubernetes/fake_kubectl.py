"""What stands on PATH as kubectl: `python fake_kubectl.py FOLDER ...`, over the state that `fake_cluster` keeps there.

With --dry-run=server it refuses what `kubernetes-validate` does.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


class State:
    """What the API server keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def edit(self) -> Iterator[dict[str, Any]]:
        """All objects by kind and name, for one process at a time."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self.folder / "state.json"
            tree = json.loads(file.read_text()) if file.exists() else {"jobs": {}, "pods": {}, "services": {}}
            before = json.dumps(tree)
            yield tree
            if (after := json.dumps(tree)) != before:
                file.write_text(after)


def kubectl(state: State, words: list[str], text: str) -> int:
    """What kubectl does, as far as zeromt asks for it."""
    flags = {word.partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("--") and word != "--"}
    plain = [word for word in words if not word.startswith("--")]
    verb = plain[0]
    with (state.folder / "asked").open("a") as log:
        log.write(json.dumps(words) + "\n")
    if verb in ("create", "apply"):
        return _create(state, yaml.safe_load(text), is_dry="--dry-run" in flags)
    with state.edit() as tree:
        if verb == "patch":
            assert flags["--type"] == "merge"
            return _patch(tree, plain[2], json.loads(flags["--patch"]))
        if verb == "get" and plain[1] == "job":
            return _show(tree["jobs"].get(plain[2]), plain[2])
        selected = {}
        if "--selector" in flags:
            key, _, value = flags["--selector"].partition("=")
            selected = {name: pod for name, pod in tree["pods"].items() if pod["metadata"]["labels"].get(key) == value}
        if verb == "get":
            return _show({"items": list(selected.values())}, "pods")
        if verb == "logs":
            for name in selected:
                for line in (state.folder / f"{name}.log").read_text().splitlines():
                    print(f"[pod/{name}/zeromt] {line}")
            return 0
        assert verb == "exec"
        container = tree["pods"][plain[1]]["spec"]["containers"][0]
    inside = words[words.index("--") + 1 :]
    return subprocess.run(inside, cwd=container["workingDir"], check=False).returncode


def _create(state: State, document: dict[str, Any], *, is_dry: bool) -> int:
    if is_dry:
        import kubernetes_validate

        try:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            print(f"error: {error.message}", file=sys.stderr)
            return 1
    with state.edit() as tree:
        metadata = document["metadata"]
        if document["kind"] == "Service":
            tree["services"][metadata["name"]] = document
            return 0
        name = metadata.setdefault("name", metadata.get("generateName", "") + uuid.uuid4().hex[:5])
        if os.environ.get("REFUSE"):
            print("Error from server (Forbidden): jobs.batch is forbidden: exceeded quota", file=sys.stderr)
            return 1
        if not is_dry:
            tree["jobs"][name] = {**document, "status": {"conditions": []}}
    print(f"job.batch/{name}")
    return 0


def _patch(tree: dict[str, Any], name: str, change: dict[str, Any]) -> int:
    if name not in tree["jobs"]:
        return _show(None, name)
    tree["jobs"][name]["spec"] |= change["spec"]
    print(f"job.batch/{name} patched")
    return 0


def _show(found: object, name: str) -> int:
    if found is None:
        print(f'Error from server (NotFound): jobs.batch "{name}" not found', file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    arguments = sys.argv[2:]
    needs_text = any(word in ("create", "apply") for word in arguments)
    sys.exit(kubectl(State(Path(sys.argv[1])), arguments, sys.stdin.read() if needs_text else ""))
