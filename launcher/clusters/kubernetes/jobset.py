"""A JobSet in place of Jobs, where a cluster has its controller (jobset.sigs.k8s.io, 0.10 or newer).

Its controller starts all pods of a training again together, each time with a number of its own, so that they need not
agree on anything before they begin; and of an array it starts the merge after the parts.

The pods are those of a Job. What their exit codes mean is said twice: by the Job, which of them end it, and by the
rules of the JobSet, which know it by the reason and the message of the Job's failure.
"""

from collections.abc import Mapping
from typing import Any

from launcher.agents.root_cause import REFUSED

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
ATTEMPT = "ZEROMT_ATTEMPT"
"""Environment variable of the pods: the number of the start."""
FAILED_BY_RULE = "FailJobSetFailurePolicyAction"
"""Why a JobSet has failed by the one rule of ours that fails it."""
_LONGEST_PREFIX = 32
"""Maximum length of a name's first part: with what is appended, pods' names have at most 63 characters."""


def first_pod(jobset: str, member: str) -> str:
    """Name in the cluster of a member's first pod."""
    return f"{jobset}-{member}-0-0.{jobset}"


def jobset_of(jobs: Mapping[str, dict[str, Any]], *, max_restarts: int) -> dict[str, Any]:
    """The manifest of a JobSet.

    Args:
        jobs: manifests of its Jobs by name; each begins when the one before has succeeded.
        max_restarts: of all pods, not counting preemptions, lost nodes and saves on request.
    """
    names, first = list(jobs), next(iter(jobs.values()))
    prefix = first["metadata"]["generateName"][:_LONGEST_PREFIX].rstrip("-")
    by_rule = {"onJobFailureReasons": ["PodFailurePolicy"]}
    refused = {"onJobFailureMessagePatterns": [f"exit code {REFUSED} matching"]}
    spec = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {
            "maxRestarts": max_restarts,
            "rules": [
                {"name": "refused", "action": "FailJobSet", **by_rule, **refused},
                {"name": "interrupted", "action": "RestartJobSetAndIgnoreMaxRestarts", **by_rule},
            ],
        },
        "ttlSecondsAfterFinished": first["spec"]["ttlSecondsAfterFinished"],
        "replicatedJobs": [
            {
                "name": name,
                "replicas": 1,
                **({"dependsOn": [{"name": names[number - 1], "status": "Complete"}]} if number else {}),
                "template": {"metadata": {"labels": job["metadata"]["labels"]}, "spec": _without_end(job["spec"])},
            }
            for number, (name, job) in enumerate(jobs.items())
        ],
    }
    metadata = {**first["metadata"], "generateName": f"{prefix}-"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def ended_by_each(job: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a Job that fails with the first of its pods, for the JobSet to start all of them again."""
    rules = [{**rule, "action": "FailJob"} for rule in job["spec"]["podFailurePolicy"]["rules"]]
    return {**job, "spec": {**job["spec"], "backoffLimit": 0, "podFailurePolicy": {"rules": rules}}}


def _without_end(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Job's specification without its deletion, which is the JobSet's."""
    return {name: value for name, value in spec.items() if name != "ttlSecondsAfterFinished"}
