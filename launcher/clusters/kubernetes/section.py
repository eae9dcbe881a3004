"""What a job needs to know of a Kubernetes cluster."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from configs.fields import STRICT, Count, Positive
from launcher.jobs import BatchCluster
from launcher.jobs.fields import Interface, LossSeconds, Port, Text, variable_problems

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""Of an object of the cluster."""
Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$")]
Context = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][^\x00-\x20\x7f]{0,511}$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]{1,15}(\.[0-9]{1,3})?(m|k|[KMGTPE]i|[MGTPE])?$")]
"""An amount, as Kubernetes writes it: 500m cores, 480Gi of memory."""
_KEY = r"([a-z0-9][a-z0-9.-]{0,251}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[str, Field(pattern=f"^{_KEY}$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
Folder = Annotated[Text, Field(pattern=r"^/[^:]*$")]
"""In the pods; Kubernetes takes no colon."""
NfsPlace = Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,252}:/")]
User = Annotated[int, Field(ge=0, le=2**31 - 1)]


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Volume:
    """Files that all pods see: exactly one of `claim`, `host_path` and `nfs`."""

    __pydantic_config__ = STRICT

    mount: Folder
    """Where it is in the pods."""
    claim: Name | None = None
    """A PersistentVolumeClaim; on several nodes, one that they can mount together (ReadWriteMany)."""
    host_path: Folder | None = None
    """A folder that every node has, such as the mount of a parallel file system."""
    nfs: NfsPlace | None = None
    """SERVER:/FOLDER."""
    sub_path: Text | None = None
    """A folder of the volume, in place of all of it."""
    read_only: bool = False

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        given = [name for name in ("claim", "host_path", "nfs") if getattr(self, name) is not None]
        if len(given) != 1:
            by = " and ".join(given) or "nothing"
            yield f"claim: {self.mount!r} is given by {by}; allowed is one of claim, host_path and nfs"
        for name in ("mount", "host_path", "nfs", "sub_path"):
            place = getattr(self, name)
            if place is not None and ".." in PurePosixPath(place).parts:
                yield f"{name}: {place!r}; allowed is a path without `..`"
        if self.sub_path is not None and self.sub_path.startswith("/"):
            yield f"sub_path: {self.sub_path!r}; allowed is a path within the volume"


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Toleration:
    """A taint of nodes that the pods may run on."""

    __pydantic_config__ = STRICT

    key: LabelKey
    value: LabelValue | None = None
    """None tolerates every value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """None tolerates every effect."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class KubernetesSection(BatchCluster):
    """How jobs are submitted, what their pods are made of, and what a node has."""

    shares_files: ClassVar[bool] = False
    suffix: ClassVar[str] = ".yaml"

    context: Context | None = None
    """Of kubectl's configuration; None takes the current one."""
    namespace: Name | None = None
    """None takes the context's."""
    image: Image | None = None
    """That has zeromt."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    pull_secrets: list[Name] = dataclasses.field(default_factory=list)
    """Secrets for the image's registry."""
    python: Text = "python3"
    """The interpreter that has zeromt, in the image."""
    directory: Folder | None = None
    """In which the job starts, in the pods; None: that of the launch."""
    volumes: list[Volume] = dataclasses.field(default_factory=list)
    """With the runs and the data."""
    gpus_per_node: Count = 8
    """0: a cluster without GPUs."""
    gpu_resource: LabelKey = "nvidia.com/gpu"
    """The name by which GPUs are asked for."""
    cpus_per_node: Quantity | None = None
    """Cores that every pod asks for."""
    memory: Quantity | None = None
    """Of every pod, such as 480Gi; it may not take more."""
    resources: dict[str, Quantity] = dataclasses.field(default_factory=dict)
    """Others that every pod asks for, such as rdma/hca: 1."""
    shared_memory: Quantity = "16Gi"
    """The most that /dev/shm may hold; it counts as memory of the pod."""
    environment: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Variables of the job, such as NCCL_IB_HCA."""
    node_selector: dict[str, LabelValue] = dataclasses.field(default_factory=dict)
    tolerations: list[Toleration] = dataclasses.field(default_factory=list)
    priority_class: Name | None = None
    runtime_class: Name | None = None
    service_account: Name | None = None
    """Of the pods; one that may read Jobs, for a job that follows another."""
    user: User | None = None
    """That the pods run as; None leaves it to the image."""
    group: User | None = None
    """That the pods run as, and that the volumes' new files belong to."""
    labels: dict[str, LabelValue] = dataclasses.field(default_factory=dict)
    """Of the Job and its pods, such as kueue.x-k8s.io/queue-name."""
    annotations: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Of the pods, such as k8s.v1.cni.cncf.io/networks."""
    grace: Positive | None = None
    """Seconds between the request to stop and the end by force; None: three of the run's slowest saves, and at least
    300."""
    max_failures: Count = 0
    """Pods that may fail, other than by a preemption or a node that is lost, before the job does."""
    max_requeues: Count = 5
    """Times that all pods are started anew without a new checkpoint in between."""
    keep_seconds: Count = 604_800
    """After its end the Job is deleted, and its pods' logs with it."""
    interface: Interface | None = None
    """Network interface of gloo and NCCL."""
    port: Port = 29_500
    """Of the rendezvous, on the first pod; the pods meet first at the next one."""
    join_timeout: Positive = 600
    """Seconds that a pod waits for the others, which may still wait for a machine; then it makes room, and is started
    again."""
    start_timeout: Positive = 60
    """Seconds within which all must have begun, once they have met; and again after ranks have failed."""
    node_timeout: LossSeconds = 15
    """Seconds of silence after which a pod is lost."""

    def problems(self) -> Iterator[str]:
        """What is wrong with single values and between fields, one line each."""
        mounts = [str(PurePosixPath(volume.mount)) for volume in self.volumes]
        for mount in sorted({mount for mount in mounts if mounts.count(mount) > 1 or mount == "/dev/shm"}):
            yield f"volumes: {mount!r} is a mount already; allowed is one volume for each"
        yield from variable_problems("environment", self.environment)
        for name in ("resources", "node_selector", "labels", "annotations"):
            yield from _key_problems(name, getattr(self, name))


def _key_problems(field: str, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if not re.fullmatch(_KEY, key):
            yield f"{field}: {key!r}; allowed is NAME or DOMAIN/NAME, of letters, digits, '.', '_' and '-'"
