"""The settings of a Kubernetes cluster."""

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
"""Name of an object of the cluster."""
Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$")]
Context = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][^\x00-\x20\x7f]{0,511}$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]{1,15}(\.[0-9]{1,3})?(m|k|[KMGTPE]i|[MGTPE])?$")]
"""A quantity in Kubernetes' notation: 500m cores, 480Gi of memory."""
_KEY = r"([a-z0-9][a-z0-9.-]{0,251}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[str, Field(pattern=f"^{_KEY}$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
Folder = Annotated[Text, Field(pattern=r"^/[^:]*$")]
"""A path in the pods; Kubernetes does not allow a colon."""
NfsPlace = Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,252}:/")]
User = Annotated[int, Field(ge=0, le=2**31 - 1)]


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Volume:
    """A volume that all pods mount: exactly one of `claim`, `host_path` and `nfs`."""

    __pydantic_config__ = STRICT

    mount: Folder
    """Mount point in the pods."""
    claim: Name | None = None
    """A PersistentVolumeClaim; with several nodes it must allow ReadWriteMany."""
    host_path: Folder | None = None
    """A folder that exists on every node, such as the mount of a parallel file system."""
    nfs: NfsPlace | None = None
    """SERVER:/FOLDER."""
    sub_path: Text | None = None
    """Mount only this folder of the volume."""
    read_only: bool = False

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
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
    """A taint of nodes that the pods tolerate."""

    __pydantic_config__ = STRICT

    key: LabelKey
    value: LabelValue | None = None
    """None: every value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """None: every effect."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class KubernetesSection(BatchCluster):
    """How jobs are submitted, what their pods contain, and what a node has."""

    shares_files: ClassVar[bool] = False
    suffix: ClassVar[str] = ".yaml"

    context: Context | None = None
    """Context of kubectl's configuration; None: the current one."""
    namespace: Name | None = None
    """None: the context's."""
    workload: Literal["job", "jobset"] = "job"
    """What the pods belong to: Jobs, or a JobSet where the cluster has its controller."""
    image: Image | None = None
    """That has zeromt."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    pull_secrets: list[Name] = dataclasses.field(default_factory=list)
    """Secrets for the image's registry."""
    python: Text = "python3"
    """The interpreter that has zeromt, in the image."""
    directory: Folder | None = None
    """Folder in the pods in which the job starts; None: that of the launch."""
    volumes: list[Volume] = dataclasses.field(default_factory=list)
    """Volumes with the runs and the data."""
    gpus_per_node: Count = 8
    """0 for a cluster without GPUs."""
    gpu_resource: LabelKey = "nvidia.com/gpu"
    """Resource name of GPUs."""
    cpus_per_node: Quantity | None = None
    """Cores requested for every pod."""
    memory: Quantity | None = None
    """Memory request and limit of every pod, such as 480Gi."""
    resources: dict[str, Quantity] = dataclasses.field(default_factory=dict)
    """Further resources requested for every pod, such as rdma/hca: 1."""
    shared_memory: Quantity = "16Gi"
    """Size limit of /dev/shm; it counts as memory of the pod."""
    environment: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Environment variables of the job, such as NCCL_IB_HCA."""
    node_selector: dict[str, LabelValue] = dataclasses.field(default_factory=dict)
    tolerations: list[Toleration] = dataclasses.field(default_factory=list)
    priority_class: Name | None = None
    runtime_class: Name | None = None
    service_account: Name | None = None
    """Service account of the pods; for a job that follows another it must be allowed to read Jobs."""
    user: User | None = None
    """User id of the pods; None: the image's."""
    group: User | None = None
    """Group id of the pods and of new files in the volumes."""
    restricted: bool = False
    """Whether the pods meet the Pod Security Standard `restricted`, which a namespace may ask for."""
    labels: dict[str, LabelValue] = dataclasses.field(default_factory=dict)
    """Labels of the Job and its pods, such as kueue.x-k8s.io/queue-name."""
    annotations: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Annotations of the pods, such as k8s.v1.cni.cncf.io/networks."""
    grace: Positive | None = None
    """Seconds between the request to stop and the kill; None: three times the run's slowest save, at least 300."""
    max_failures: Count = 0
    """Number of pod failures, not counting preemptions and lost nodes, before the job fails."""
    max_requeues: Count = 5
    """Restarts of all pods without a new checkpoint before the job gives up."""
    keep_seconds: Count = 604_800
    """Seconds after its end until the Job and its pods' logs are deleted."""
    interface: Interface | None = None
    """Network interface for gloo and NCCL."""
    port: Port = 29_500
    """Port of the rendezvous on the first pod; before it, pods meet at the next higher port."""
    join_timeout: Positive = 600
    """Seconds that a pod waits for others, which may still wait for a machine; then it ends and is restarted."""
    start_timeout: Positive = 60
    """Seconds within which all pods must start once they have met, and again after a failure."""
    node_timeout: LossSeconds = 15
    """Seconds of silence after which a pod is lost."""

    def problems(self) -> Iterator[str]:
        """Errors in single values and between fields, one line each."""
        mounts = [str(PurePosixPath(volume.mount)) for volume in self.volumes]
        for mount in sorted({mount for mount in mounts if mounts.count(mount) > 1 or mount == "/dev/shm"}):
            yield f"volumes: {mount!r} is a mount already; allowed is one volume for each"
        others = [volume.mount for volume in self.volumes if volume.claim is None]
        if self.restricted and others:
            yield f"volumes: {others[0]!r} is no claim, with restricted=true; allowed is a claim for each"
        if self.restricted and self.user == 0:
            yield "user: 0 is root, with restricted=true; allowed is a number from 1"
        yield from variable_problems("environment", self.environment)
        for name in ("resources", "node_selector", "labels", "annotations"):
            yield from _key_problems(name, getattr(self, name))


def _key_problems(field: str, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if not re.fullmatch(_KEY, key):
            yield f"{field}: {key!r}; allowed is NAME or DOMAIN/NAME, of letters, digits, '.', '_' and '-'"
