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
            tree = (
                json.loads(file.read_text())
                if file.exists()
                else {"jobs": {}, "jobsets": {}, "pods": {}, "services": {}}
            )
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
            return _patch(tree[f"{plain[1]}s"], plain[2], json.loads(flags["--patch"]))
        if verb == "get" and plain[1] in ("job", "jobset"):
            return _show(tree[f"{plain[1]}s"].get(plain[2]), plain[2])
        if verb == "get" and plain[1] == "events":
            return _show({"items": []}, "events")
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
            for job in jobs_of(document):
                kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            print(f"error: {error.message}", file=sys.stderr)
            return 1
    with state.edit() as tree:
        metadata = document["metadata"]
        if document["kind"] == "Service":
            tree["services"][metadata["name"]] = document
            return 0
        name = metadata.setdefault("name", metadata.get("generateName", "") + uuid.uuid4().hex[:5])
        if os.environ.get("WARN"):
            print(f"Warning: {os.environ['WARN']}", file=sys.stderr)
        if os.environ.get("REFUSE"):
            print("Error from server (Forbidden): jobs.batch is forbidden: exceeded quota", file=sys.stderr)
            return 1
        is_set = document["kind"] == "JobSet"
        if not is_dry:
            status = {"conditions": [], **({"restarts": 0, "counted": 0} if is_set else {})}
            tree["jobsets" if is_set else "jobs"][name] = {**document, "status": status}
    print(f"{'jobset.jobset.x-k8s.io' if is_set else 'job.batch'}/{name}")
    return 0


def jobs_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests of Jobs in a manifest: itself, or a JobSet's."""
    if document["kind"] != "JobSet":
        return [document]
    members = document["spec"]["replicatedJobs"]
    made = {"apiVersion": "batch/v1", "kind": "Job"}
    return [{**made, **one["template"], "metadata": {"name": one["name"]}} for one in members]


def _patch(jobs: dict[str, Any], name: str, change: dict[str, Any]) -> int:
    if name not in jobs:
        return _show(None, name)
    jobs[name]["spec"] |= change["spec"]
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
