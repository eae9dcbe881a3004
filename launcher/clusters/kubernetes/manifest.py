"""Renders the manifest of a job from a site's profile: pure functions.

A value gets into the pods' command and environment verbatim or is refused: every string is in double quotes, so that
YAML cannot interpret it, and `$` is doubled, since the kubelet expands `$(NAME)`. Values that Kubernetes reads itself
must match a pattern (`section`).
"""

import math
import re
from pathlib import PurePosixPath
from typing import Any

import yaml

from configs import UserError
from launcher.agents.root_cause import REFUSED, STOPPED
from launcher.clusters.kubernetes.section import KubernetesSection, Toleration, Volume
from launcher.jobs import Job, Preparation, Training

JOB_LABEL = "batch.kubernetes.io/job-name"
"""The label with which Kubernetes marks the pods of a Job."""
JOB_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SHORTEST_GRACE, _SAVES_IN_THE_GRACE = 300, 3
_MESSAGE = "/dev/termination-log"
_ENTRY = "launcher.clusters.kubernetes"
_ID = "$(ZEROMT_JOB_ID)"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_NO_WORDS = ("y", "yes", "n", "no", "on", "off", "true", "false", "null")
_APPLICATION, _RUN = "app.kubernetes.io/name", "zeromt/name"


def render_training(site: KubernetesSection, job: Training) -> str:
    """The manifest of a training: a headless Service, through which pods find each other, and an Indexed Job.

    Args:
        site: the cluster.
        job: what is to run.

    Raises:
        UserError: a value that no manifest may hold, or a field that is missing; the message names it.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,4}", job.nodes):
        raise UserError(f"--nodes: {job.nodes!r}; allowed is a number from 1 to 99999 on Kubernetes")
    grace = choose_grace(site, job.slowest_save)
    service = f"zeromt-{_object_name(job)}"
    arguments = job.node_arguments(
        nnodes=job.nodes,
        join_timeout=site.start_timeout,
        node_timeout=site.node_timeout,
        interface=site.interface,
    )
    command = [
        *_words("python", [site.python]),
        *("-P", "-m", f"{_ENTRY}.pod", "node", "--message", _MESSAGE),
        *("--max-requeues", str(site.max_requeues), "--join-timeout", str(site.join_timeout), "--grace", str(grace)),
        *("--", "--rendezvous", f"{_ID}-0.{service}:{site.port}", "--job-id", _ID),
        *_words("command", arguments),
    ]
    pod = _pod(site, job, command, gpus=site.gpus_per_node, grace=grace)
    pod["subdomain"] = service
    return _dump(_service(site, service, _labels(site, job)), _job(site, job, pod, int(job.nodes)))


def render_preparation(site: KubernetesSection, job: Preparation) -> str:
    """The manifest of a preparation: an Indexed Job with a pod for each part of the corpus, or their merge.

    Args:
        site: the cluster.
        job: what is to run.

    Raises:
        UserError: as of `render_training`.
    """
    if site.service_account is None:
        raise UserError(
            "service_account: none with --prepare, whose merge follows the parts; allowed is one that may read Jobs"
        )
    python = _words("python", [site.python])
    if job.is_merge:
        command = [*python, *_words("command", job.command("", python=site.python)[1:])]
    else:
        part = ["part", "--parts", str(job.parts), "--", job.config, *job.overrides]
        command = [*python, "-P", "-m", f"{_ENTRY}.pod", *_words("command", part)]
    pod = _pod(site, job, command, gpus=0, grace=_SHORTEST_GRACE)
    return _dump(_job(site, job, pod, 1 if job.is_merge else job.parts))


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
        manifest: of `render_training` or `render_preparation`.
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
    metadata = {"generateName": f"{_object_name(job)}-", **_namespace(site), "labels": labels}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    if job.after is None:
        return document
    if site.service_account is None:
        raise UserError("service_account: none with --after; allowed is one that may read Jobs")
    if not JOB_NAME.fullmatch(job.after):
        raise UserError(f"--after: {job.after!r}; allowed is the name of a Job")
    followed: dict[str, Any] = yaml.safe_load(following(_dump(document), job.after))
    return followed


def _metadata(site: KubernetesSection, labels: dict[str, str]) -> dict[str, Any]:
    """Of the pods."""
    if not site.annotations:
        return {"labels": labels}
    return {"labels": labels, "annotations": {key: _plain("annotations", v) for key, v in site.annotations.items()}}


def _pod(site: KubernetesSection, job: Job, command: list[str], *, gpus: int, grace: int) -> dict[str, Any]:
    """The pods' specification, for one container."""
    if site.image is None:
        raise UserError("image: none given; allowed is a container image that has zeromt")
    directory = site.directory or job.folder
    _check_place(site, directory, job.run)
    container: dict[str, Any] = {"name": "zeromt", "image": site.image}
    if site.image_pull_policy is not None:
        container["imagePullPolicy"] = site.image_pull_policy
    shared = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": site.shared_memory}}
    container |= {
        "command": command,
        "workingDir": _plain("directory", directory),
        "env": _environment(site, job),
        "resources": _resources(site, gpus),
        "terminationMessagePath": _MESSAGE,
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            *(_mount(number, volume) for number, volume in enumerate(site.volumes)),
        ],
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "shareProcessNamespace": True,  # otherwise zeromt would be process 1, which must reap all orphans
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [shared, *(_volume(number, volume) for number, volume in enumerate(site.volumes))],
        "tolerations": _tolerations(site),
    }
    identity = {"runAsUser": site.user, "runAsGroup": site.group, "fsGroup": site.group}
    optional = {
        "imagePullSecrets": [{"name": name} for name in site.pull_secrets],
        "nodeSelector": site.node_selector,
        "priorityClassName": site.priority_class,
        "runtimeClassName": site.runtime_class,
        "serviceAccountName": site.service_account,
        "securityContext": {name: number for name, number in identity.items() if number is not None},
    }
    return pod | {name: value for name, value in optional.items() if value}


def _environment(site: KubernetesSection, job: Job) -> list[dict[str, Any]]:
    label = {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_LABEL}']"}}
    given = {**site.environment, **job.variables}
    given.pop("ZEROMT_JOB_ID", None)
    words = _words("environment", list(given.values()))
    return [
        {"name": "ZEROMT_JOB_ID", "valueFrom": label},
        *({"name": name, "value": word} for name, word in zip(given, words, strict=True)),
    ]


def _resources(site: KubernetesSection, gpus: int) -> dict[str, Any]:
    """A pod's resource requests and limits."""
    limits = dict(site.resources)
    if gpus:
        limits[site.gpu_resource] = str(gpus)
    if site.memory is not None:
        limits["memory"] = site.memory
    requests = limits | ({"cpu": site.cpus_per_node} if site.cpus_per_node is not None else {})
    return {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _tolerations(site: KubernetesSection) -> list[dict[str, Any]]:
    """The profile's tolerations, and for an unresponsive node one that lasts as long as other pods wait for it."""
    lost = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": site.node_timeout,
        }
        for state in ("not-ready", "unreachable")
    ]
    return [*map(_toleration, site.tolerations), *lost]


def _toleration(given: Toleration) -> dict[str, Any]:
    found: dict[str, Any] = {"key": given.key}
    found |= {"operator": "Exists"} if given.value is None else {"operator": "Equal", "value": given.value}
    return found if given.effect is None else found | {"effect": given.effect}


def _volume(number: int, volume: Volume) -> dict[str, Any]:
    source: dict[str, Any]
    if volume.claim is not None:
        source = {"persistentVolumeClaim": {"claimName": volume.claim}}
    elif volume.host_path is not None:
        source = {"hostPath": {"path": _plain("host_path", volume.host_path), "type": "Directory"}}
    else:
        server, _, path = (volume.nfs or "").partition(":")
        source = {"nfs": {"server": server, "path": _plain("nfs", path)}}
    return {"name": f"volume-{number}", **source}


def _mount(number: int, volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": f"volume-{number}", "mountPath": _plain("mount", volume.mount)}
    if volume.sub_path is not None:
        mount["subPath"] = _plain("sub_path", volume.sub_path)
    return mount | ({"readOnly": True} if volume.read_only else {})


def _check_place(site: KubernetesSection, directory: str, run: str) -> None:
    """Refuse a run whose folder would disappear with its pods.

    Raises:
        UserError: no writable volume contains it.
    """
    place = PurePosixPath(directory) / run
    mounts = sorted(site.volumes, key=lambda volume: len(PurePosixPath(volume.mount).parts))
    holding = [volume for volume in mounts if place.is_relative_to(volume.mount)]
    if not holding or holding[-1].read_only or ".." in place.parts:
        raise UserError(
            f"volumes: none that can be written holds the run's folder {str(place)!r}; "
            "allowed is one mounted there or above, see `volumes` and `directory` of the profile"
        )


def _namespace(site: KubernetesSection) -> dict[str, str]:
    return {} if site.namespace is None else {"namespace": site.namespace}


def _labels(site: KubernetesSection, job: Job) -> dict[str, str]:
    return {**site.labels, _APPLICATION: "zeromt", _RUN: _object_name(job)}


def _object_name(job: Job) -> str:
    """The job's name as a Kubernetes name: lower-case letters and dashes."""
    if not _NAME.fullmatch(job.name):
        raise UserError(f"--job-name: {job.name!r}; allowed are letters, digits, '.', '_' and '-', at most 40")
    return re.sub(r"[._]", "-", job.name.lower())


def _words(field: str, values: list[str]) -> list[str]:
    """Values escaped so that the kubelet does not change them."""
    return [_plain(field, value).replace("$", "$$") for value in values]


def _plain(field: str, value: str) -> str:
    if _CONTROL.search(value):
        raise UserError(f"{field}: {value!r}; allowed is text without line breaks and control characters")
    return value


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
