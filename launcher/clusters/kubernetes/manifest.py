"""Renders the manifest of a job from a site's profile: pure functions.

A value gets into the manifest verbatim or is refused: every string is in double quotes, so that YAML cannot interpret
it. Values that Kubernetes reads itself must match a pattern (`section`).
"""

import dataclasses
import math
import re
from typing import Any

import yaml

from configs import UserError
from launcher.agents.root_cause import REFUSED, STOPPED
from launcher.clusters.kubernetes.jobset import ended_by_each, first_pod, jobset_of
from launcher.clusters.kubernetes.podspec import MESSAGE, plain, pod_of, words_of
from launcher.clusters.kubernetes.section import KubernetesSection
from launcher.jobs import Array, Job, Training

JOB_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SHORTEST_GRACE, _SAVES_IN_THE_GRACE = 300, 3
_ENTRY = "launcher.clusters.kubernetes"
_ID = "$(ZEROMT_JOB_ID)"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_NO_WORDS = ("y", "yes", "n", "no", "on", "off", "true", "false", "null")
LOGS_ANNOTATION = "zeromt/logs"
"""Annotation of a Job: its run's folder of logs, where it was submitted. Only a Job with it is stopped or reached."""
_APPLICATION, _RUN = "app.kubernetes.io/name", "zeromt/name"


def render_training(site: KubernetesSection, job: Training) -> str:
    """The manifest of a training: a headless Service, through which pods find each other, and an Indexed Job; or a
    JobSet, which brings its own Service.

    Args:
        site: the cluster.
        job: what is to run.

    Raises:
        UserError: a value that no manifest may hold, or a field that is missing; the message names it.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,4}", job.nodes):
        raise UserError(f"--nodes: {job.nodes!r}; allowed is a number from 1 to 99999 on Kubernetes")
    grace = choose_grace(site, job.slowest_save)
    is_set, service = site.workload == "jobset", f"zeromt-{_object_name(site, job)}"
    arguments = job.node_arguments(
        nnodes=job.nodes,
        join_timeout=site.join_timeout if is_set else site.start_timeout,
        node_timeout=site.node_timeout,
        interface=site.interface,
    )
    command = [
        *words_of("python", [site.python]),
        *("-P", "-m", f"{_ENTRY}.pod", "node", "--message", MESSAGE),
        *("--max-requeues", str(site.max_requeues), "--join-timeout", str(site.join_timeout), "--grace", str(grace)),
        *("--", "--rendezvous", f"{first_pod(_ID, 'node') if is_set else f'{_ID}-0.{service}'}:{site.port}"),
        *("--job-id", _ID),
        *words_of("command", arguments),
    ]
    pod = pod_of(site, job, command, gpus=site.gpus_per_node, grace=grace)
    if is_set:
        member = ended_by_each(_job(site, job, pod, int(job.nodes)))
        return _dump(jobset_of({"node": member}, max_restarts=site.max_failures))
    pod["subdomain"] = service
    return _dump(_service(site, service, _labels(site, job)), _job(site, job, pod, int(job.nodes)))


def render_array(site: KubernetesSection, job: Array) -> str:
    """The manifest of an array: an Indexed Job with a pod for each part of the command, or their merge.

    A JobSet of the parts has the merge too, for which nothing is left.

    Args:
        site: the cluster.
        job: what is to run.

    Raises:
        UserError: as of `render_training`.
    """
    if site.workload == "jobset":
        members = {"part": _array(site, job), "merge": _array(site, dataclasses.replace(job, is_merge=True))}
        return "" if job.is_merge else _dump(jobset_of(members, max_restarts=0))
    if site.service_account is None:
        raise UserError(
            "service_account: none with --array, whose merge follows the parts; allowed is one that may read Jobs"
        )
    return _dump(_array(site, job))


def _array(site: KubernetesSection, job: Array) -> dict[str, Any]:
    part = ["-P", "-m", f"{_ENTRY}.pod", "part", "--parts", str(job.parts), "--", *job.words]
    words = job.command("", python=site.python)[1:] if job.is_merge else part
    command = [*words_of("python", [site.python]), *words_of("command", words)]
    pod = pod_of(site, job, command, gpus=site.gpus_per_node if job.takes_gpus else 0, grace=_SHORTEST_GRACE)
    return _job(site, job, pod, 1 if job.is_merge else job.parts)


def choose_grace(site: KubernetesSection, save_seconds: float) -> int:
    """Seconds between the request to stop and the kill.

    Args:
        site: its `grace` is used if it is set.
        save_seconds: of the slowest save measured; 0 if none was.

    Raises:
        UserError: a save would not fit.
    """
    grace = site.grace or max(_SHORTEST_GRACE, math.ceil(_SAVES_IN_THE_GRACE * save_seconds))
    if grace <= save_seconds:
        raise UserError(f"grace: {grace} is less than the run's slowest save took, {save_seconds:.0f} s; give more")
    return grace


def following(manifest: str, after: str) -> str:
    """A manifest whose pods wait until another Job has succeeded, and fail the Job if it has not.

    Args:
        manifest: of `render_training` or `render_array`.
        after: name of that other Job, in the same namespace.
    """
    documents = list(yaml.safe_load_all(manifest))
    pod = documents[-1]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    wait = dict(container, name="wait", command=[container["command"][0], "-P", "-m", f"{_ENTRY}.wait", after])
    pod["initContainers"] = [wait]
    pod["automountServiceAccountToken"] = True
    return _dump(*documents)


def _service(site: KubernetesSection, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Gives each pod a DNS name in the cluster. It is kept for later jobs of the same name, at no cost."""
    own = {key: labels[key] for key in (_APPLICATION, _RUN)}
    # Pods look each other up before they are ready.
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": own}
    metadata = {"name": name, **_namespace(site), "labels": own}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _job(site: KubernetesSection, job: Job, pod: dict[str, Any], number: int) -> dict[str, Any]:
    labels = _labels(site, job)
    spec = {
        "completionMode": "Indexed",
        "completions": number,
        "parallelism": number,
        "backoffLimit": site.max_failures,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [REFUSED]}},
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [STOPPED]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "ttlSecondsAfterFinished": site.keep_seconds,
        "template": {"metadata": _metadata(site, labels), "spec": pod},
    }
    name = {"generateName": f"{_object_name(site, job)}-", **_namespace(site)}
    metadata = {**name, "labels": labels, "annotations": {LOGS_ANNOTATION: plain("logs", job.logs)}}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    if job.after is None:
        return document
    if site.workload == "jobset":
        raise UserError(
            f"--after: {job.after!r} with workload=jobset: a JobSet waits for no other job; launch it when "
            f"{job.after} has ended"
        )
    if site.service_account is None:
        raise UserError("service_account: none with --after; allowed is one that may read Jobs")
    if not JOB_NAME.fullmatch(job.after):
        raise UserError(f"--after: {job.after!r}; allowed is the name of a Job")
    followed: dict[str, Any] = yaml.safe_load(following(_dump(document), job.after))
    return followed


def _metadata(site: KubernetesSection, labels: dict[str, str]) -> dict[str, Any]:
    """Metadata of the pods."""
    if not site.annotations:
        return {"labels": labels}
    return {"labels": labels, "annotations": {key: plain("annotations", v) for key, v in site.annotations.items()}}


def _namespace(site: KubernetesSection) -> dict[str, str]:
    return {} if site.namespace is None else {"namespace": site.namespace}


def _labels(site: KubernetesSection, job: Job) -> dict[str, str]:
    return {**site.labels, _APPLICATION: "zeromt", _RUN: _object_name(site, job)}


def _object_name(site: KubernetesSection, job: Job) -> str:
    """The job's name as a Kubernetes name: lower-case letters and dashes."""
    if not _NAME.fullmatch(job.name):
        raise UserError(f"--job-name: {job.name!r}; allowed are letters, digits, '.', '_' and '-', at most 40")
    if site.workload == "jobset" and job.name[0].isdigit():
        raise UserError(f"--job-name: {job.name!r}; allowed is one that begins with a letter, with workload=jobset")
    return re.sub(r"[._]", "-", job.name.lower())


class _Dumper(yaml.SafeDumper):
    """Puts strings except plain words in double quotes: parsers differ in what they take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full, without YAML aliases."""
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_word = _WORD.fullmatch(text) and text.lower() not in _NO_WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_word else '"')


_Dumper.add_representer(str, _string)


def _dump(*documents: dict[str, Any]) -> str:
    texts = [yaml.dump(one, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf) for one in documents]
    return "---\n".join(texts)
