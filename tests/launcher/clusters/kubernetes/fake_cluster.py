"""A cluster of one machine: kubectl, an API that keeps Jobs and pods in a folder, their controller, and the kubelet.

    FakeCluster(folder)                  in a test: starts the pods' commands as processes, and keeps the Jobs' state
    fake_kubectl.py                      what stands on PATH as kubectl

Of JobSet: see `fake_jobset`. Of Job: Indexed completions, podFailurePolicy (in the order of its rules, an ignored
failure is replaced), backoffLimit, suspension, podReplacementPolicy Failed. Of pods: init containers, `$(NAME)` in
commands and environment, the message of the end, SIGTERM and SIGKILL, DNS names of an Indexed Job's pods. It is no more
exact than these tests need.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import descendants
from tests.launcher.clusters.kubernetes import fake_jobset, fake_kubectl
from tests.launcher.clusters.kubernetes.fake_kubectl import State

JOB, INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
_LOOK_SECONDS = 0.05


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """As the kubelet expands commands and environment: `$(NAME)` where it is known, `$$` to `$`."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]), text, flags=re.DOTALL
    )


class FakeCluster:
    """Runs Jobs until it is closed."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Begin.

        Args:
            folder: for the state, the pods' output and `bin/kubectl`.
            environment: of the pods, as of an image.
        """
        (folder / "bin").mkdir(parents=True)
        kubectl = folder / "bin" / "kubectl"
        kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_kubectl.__file__} {folder} "$@"\n')
        kubectl.chmod(0o755)
        self.path = str(kubectl.parent)
        self.environment = dict(environment)
        self.account = folder / "account"
        self.folder = folder
        self._state = State(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._is_closed = threading.Event()
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End everything."""
        self._is_closed.set()
        self._thread.join()
        for process in self._processes.values():
            _kill(process)
        assert self.problem is None, self.problem

    def pods(self, index: int | None = None) -> list[str]:
        """Names of the pods that run, of one index or all."""
        with self._state.edit() as tree:
            return [
                name
                for name, pod in tree["pods"].items()
                if pod["status"]["phase"] == "Running" and index in (None, int(pod["metadata"]["labels"][INDEX]))
            ]

    def starts(self) -> list[tuple[int, int | None]]:
        """Index and exit code of every pod that there was, the first first."""
        with self._state.edit() as tree:
            return [(int(p["metadata"]["labels"][INDEX]), _code(p)) for p in tree["pods"].values()]

    def job(self, name: str) -> dict[str, Any]:
        """A Job or JobSet as the API has it."""
        with self._state.edit() as tree:
            found: dict[str, Any] = {**tree["jobs"], **tree["jobsets"]}[name]
            return found

    def is_over(self, name: str) -> bool:
        """Whether a Job has ended, or is suspended, and none of its pods is left."""
        conditions = {one["type"] for one in self.job(name)["status"]["conditions"]}
        has_ended = conditions & {"Complete", "Completed", "Failed"} or "Suspended" in conditions
        with self._state.edit() as tree:
            labels = (JOB, fake_jobset.NAME)
            pods = [p for p in tree["pods"].values() if name in [p["metadata"]["labels"].get(one) for one in labels]]
        return bool(has_ended) and all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)

    def output(self) -> str:
        """What all pods wrote."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def preempt(self, pod: str) -> None:
        """Ask a pod to make room."""
        self._disrupt(pod, "PreemptionByScheduler")
        self._processes[pod].send_signal(signal.SIGTERM)

    def lose(self, pod: str) -> None:
        """Take a node away, with all that ran there."""
        self._disrupt(pod, "DeletionByTaintManager")
        _kill(self._processes[pod])

    def _disrupt(self, pod: str, reason: str) -> None:
        with self._state.edit() as tree:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            tree["pods"][pod]["status"]["conditions"].append(condition)

    def _run(self) -> None:
        try:
            while not self._is_closed.wait(_LOOK_SECONDS):
                with self._state.edit() as tree:
                    for pod in tree["pods"].values():
                        self._look_at(pod)
                    for name, jobset in tree["jobsets"].items():
                        fake_jobset.control(name, jobset, tree)
                    for name, job in tree["jobs"].items():
                        self._control(
                            job, {k: p for k, p in tree["pods"].items() if p["metadata"]["labels"][JOB] == name}, tree
                        )
        except BaseException as error:
            self.problem = error

    # --- the controller of Jobs

    def _control(self, job: dict[str, Any], pods: dict[str, Any], tree: dict[str, Any]) -> None:
        spec, status = job["spec"], job["status"]
        active = {name: pod for name, pod in pods.items() if pod["status"]["phase"] in ("Pending", "Running")}
        for pod in pods.values():
            if pod["status"]["phase"] == "Failed" and not pod["counted"]:
                pod["counted"] = True
                if not job.get("isOver"):
                    self._count(job, pod)
        done = {int(p["metadata"]["labels"][INDEX]) for p in pods.values() if p["status"]["phase"] == "Succeeded"}
        is_suspended = bool(spec.get("suspend"))
        if len(done) == spec["completions"] and not job.get("isOver"):
            _end(job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        status["active"], status["succeeded"] = len(active), len(done)
        if not job.get("isOver"):
            status["conditions"] = [{"type": "Suspended", "status": "True"}] if is_suspended else []
        if job.get("isOver") or is_suspended:
            for name, pod in active.items():
                self._delete(name, pod)
            if job.get("isOver") and not active:
                status["conditions"] = [job["isOver"]]
            return
        there = done | {int(pod["metadata"]["labels"][INDEX]) for pod in active.values()}
        for index in sorted(set(range(spec["completions"])) - there)[: spec["parallelism"] - len(active)]:
            self._start(job, index, tree)

    def _count(self, job: dict[str, Any], pod: dict[str, Any]) -> None:
        """What podFailurePolicy says of a failed pod."""
        if "deletionTimestamp" in pod["metadata"] and job["spec"].get("suspend"):
            return
        for number, rule in enumerate(job["spec"]["podFailurePolicy"]["rules"]):
            codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
            kinds = {(c["type"], c["status"]) for c in pod["status"]["conditions"]}
            if codes is not None:
                assert codes["operator"] == "In"
            if (codes and _code(pod) in codes["values"]) or any((c["type"], c["status"]) in kinds for c in conditions):
                if rule["action"] == "FailJob":
                    what = f"failed with exit code {_code(pod)}" if codes else "has condition DisruptionTarget"
                    _end(job, "Failed", "PodFailurePolicy", f"Pod {what} matching FailJob rule at index {number}")
                return
        job["status"]["failed"] = job["status"].get("failed", 0) + 1
        if job["status"]["failed"] > job["spec"]["backoffLimit"]:
            _end(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    # --- the kubelet

    def _start(self, job: dict[str, Any], index: int, tree: dict[str, Any]) -> None:
        name = f"{job['metadata']['name']}-{index}-{uuid.uuid4().hex[:5]}"
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], JOB: job["metadata"]["name"], INDEX: str(index)}
        status = {"phase": "Pending", "conditions": [], "initContainerStatuses": [], "containerStatuses": []}
        pod = {
            "metadata": {"name": name, "labels": labels},
            "spec": template["spec"],
            "status": status,
            "counted": False,
        }
        tree["pods"][name] = pod
        subdomain = template["spec"].get("subdomain")
        assert subdomain is None or subdomain in tree["services"]
        self._spawn(pod, [*template["spec"].get("initContainers", []), *template["spec"]["containers"]][0])

    def _spawn(self, pod: dict[str, Any], container: dict[str, Any]) -> None:
        name, words, variables = self.process_of(pod, container)
        which = "containerStatuses" if container["name"] == "zeromt" else "initContainerStatuses"
        pod["status"][which] = [{"name": container["name"], "state": {"running": {}}}]
        pod["status"]["phase"] = "Running" if container["name"] == "zeromt" else "Pending"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                words, cwd=container["workingDir"], env=variables, stdout=log, stderr=log, start_new_session=True
            )

    def process_of(self, pod: dict[str, Any], container: dict[str, Any]) -> tuple[str, list[str], dict[str, str]]:
        """Name, command and environment of a pod's process, as the container runtime gets them."""
        name, job = pod["metadata"]["name"], pod["metadata"]["labels"][JOB]
        variables = dict(self.environment)
        for item in container["env"]:
            path = (item.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath", "")
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
            value = pod["metadata"]["labels"][label[1]] if label else expanded(item["value"], variables)
            variables[item["name"]] = value
        variables["JOB_COMPLETION_INDEX"] = pod["metadata"]["labels"][INDEX]
        words = [expanded(word, variables) for word in container["command"]]
        words = [str(self._message(name)) if word == container["terminationMessagePath"] else word for word in words]
        dns = f"{job}-0.{pod['spec'].get('subdomain')}:"
        words = [word.replace(dns, "127.0.0.1:") if word.startswith(dns) else word for word in words]
        if container["name"] == "wait":
            assert words[1:4] == ["-P", "-m", "launcher.clusters.kubernetes.wait"]
            assert pod["spec"]["automountServiceAccountToken"]
            code = "import sys, pathlib; from launcher.clusters.kubernetes import wait; sys.exit(wait.main("
            code += "sys.argv[2:], account=pathlib.Path(sys.argv[1]), look_seconds=0.2))"
            words = [words[0], "-P", "-c", code, str(self.account), words[4]]
        return name, words, variables

    def _look_at(self, pod: dict[str, Any]) -> None:
        """Note the end of a pod's process, and begin the next one."""
        name = pod["metadata"]["name"]
        if pod["status"]["phase"] not in ("Pending", "Running") or self._processes[name].poll() is None:
            return
        code = self._processes[name].returncode
        code = code if code >= 0 else 128 - code
        if pod["status"]["phase"] == "Pending" and code == 0 and "deletionTimestamp" not in pod["metadata"]:
            self._spawn(pod, pod["spec"]["containers"][0])
            return
        message = self._message(name).read_text() if self._message(name).exists() else ""
        which = "initContainerStatuses" if pod["status"]["phase"] == "Pending" else "containerStatuses"
        pod["status"][which][0]["state"] = {"terminated": {"exitCode": code, "message": message}}
        pod["status"]["phase"] = "Succeeded" if code == 0 and which == "containerStatuses" else "Failed"

    def _delete(self, name: str, pod: dict[str, Any]) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = str(time.time())
            self._processes[name].send_signal(signal.SIGTERM)

    def _message(self, pod: str) -> Path:
        return self.folder / f"{pod}.message"


def _end(job: dict[str, Any], kind: str, reason: str, message: str) -> None:
    """Of a Job, whose condition says so when its pods have ended."""
    job["isOver"] = {"type": kind, "status": "True", "reason": reason, "message": message}
    before = "FailureTarget" if kind == "Failed" else "SuccessCriteriaMet"
    job["status"]["conditions"] = [{**job["isOver"], "type": before}]


def _code(pod: Mapping[str, Any]) -> int | None:
    for one in [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]:
        if one["state"].get("terminated", {}).get("exitCode"):
            return int(one["state"]["terminated"]["exitCode"])
    return 0 if pod["status"]["phase"] == "Succeeded" else None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """A process and all of its kind, whatever sessions they made; itself first, or it would see its child fail."""
    if process.poll() is not None:
        return
    for pid in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
