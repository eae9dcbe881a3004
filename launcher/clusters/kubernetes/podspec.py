"""The specification of a job's pods, from a site's profile: pure functions.

A value gets into the pods' command and environment verbatim or is refused: `$` is doubled, since the kubelet expands
`$(NAME)`.
"""

import re
from pathlib import PurePosixPath
from typing import Any

from configs import UserError
from launcher.clusters.kubernetes.jobset import ATTEMPT, ATTEMPT_LABEL, JOBSET_LABEL
from launcher.clusters.kubernetes.section import KubernetesSection, Toleration, Volume
from launcher.jobs import Job

JOB_LABEL = "batch.kubernetes.io/job-name"
"""The label with which Kubernetes marks the pods of a Job."""
MESSAGE = "/dev/termination-log"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def pod_of(site: KubernetesSection, job: Job, command: list[str], *, gpus: int, grace: int) -> dict[str, Any]:
    """The pods' specification, for one container."""
    if site.image is None:
        raise UserError("image: none given; allowed is a container image that has zeromt")
    directory = site.directory or job.folder
    _check_place(site, directory, job.run)
    container: dict[str, Any] = {"name": "zeromt", "image": site.image}
    if site.image_pull_policy is not None:
        container["imagePullPolicy"] = site.image_pull_policy
    if site.restricted:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    shared = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": site.shared_memory}}
    container |= {
        "command": command,
        "workingDir": plain("directory", directory),
        "env": _environment(site, job),
        "resources": _resources(site, gpus),
        "terminationMessagePath": MESSAGE,
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
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} if site.restricted else {}
    optional = {
        "imagePullSecrets": [{"name": name} for name in site.pull_secrets],
        "nodeSelector": site.node_selector,
        "priorityClassName": site.priority_class,
        "runtimeClassName": site.runtime_class,
        "serviceAccountName": site.service_account,
        "securityContext": {name: n for name, n in identity.items() if n is not None} | restricted,
    }
    return pod | {name: value for name, value in optional.items() if value}


def _environment(site: KubernetesSection, job: Job) -> list[dict[str, Any]]:
    labels = {"ZEROMT_JOB_ID": JOB_LABEL}
    if site.workload == "jobset":
        labels = {"ZEROMT_JOB_ID": JOBSET_LABEL, ATTEMPT: ATTEMPT_LABEL}
    given = {**site.environment, **job.variables}
    for name in labels:
        given.pop(name, None)
    words = words_of("environment", list(given.values()))
    return [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
            for name, label in labels.items()
        ),
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
    toleration: dict[str, Any] = {"key": given.key}
    toleration |= {"operator": "Exists"} if given.value is None else {"operator": "Equal", "value": given.value}
    return toleration if given.effect is None else toleration | {"effect": given.effect}


def _volume(number: int, volume: Volume) -> dict[str, Any]:
    source: dict[str, Any]
    if volume.claim is not None:
        source = {"persistentVolumeClaim": {"claimName": volume.claim}}
    elif volume.host_path is not None:
        source = {"hostPath": {"path": plain("host_path", volume.host_path), "type": "Directory"}}
    else:
        server, _, path = (volume.nfs or "").partition(":")
        source = {"nfs": {"server": server, "path": plain("nfs", path)}}
    return {"name": f"volume-{number}", **source}


def _mount(number: int, volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": f"volume-{number}", "mountPath": plain("mount", volume.mount)}
    if volume.sub_path is not None:
        mount["subPath"] = plain("sub_path", volume.sub_path)
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


def words_of(field: str, values: list[str]) -> list[str]:
    """Values escaped so that the kubelet does not change them."""
    return [plain(field, value).replace("$", "$$") for value in values]


def plain(field: str, value: str) -> str:
    """A value that Kubernetes takes as it is.

    Raises:
        UserError: it holds a control character.
    """
    if _CONTROL.search(value):
        raise UserError(f"{field}: {value!r}; allowed is text without line breaks and control characters")
    return value
