"""What the controller of JobSets does, over the state that `fake_cluster` keeps, as far as these tests need it.

Its Jobs, one after another where they depend on one another; the rules of failurePolicy; global restarts, which delete
all Jobs and their pods and count up the label of the attempt; suspension; success when all Jobs are complete.
"""

import copy
import re
from typing import Any

NAME, ATTEMPT = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/restart-attempt"
JOB = "batch.kubernetes.io/job-name"


def control(name: str, jobset: dict[str, Any], tree: dict[str, Any]) -> None:
    """Look at a JobSet once."""
    spec, status = jobset["spec"], jobset["status"]
    if {one["type"] for one in status["conditions"]} & {"Completed", "Failed"}:
        return
    jobs = {member["name"]: tree["jobs"].get(f"{name}-{member['name']}-0") for member in spec["replicatedJobs"]}
    conditions = {key: {c["type"]: c for c in job["status"]["conditions"]} for key, job in jobs.items() if job}
    for found in conditions.values():
        if "Failed" in found:
            _fail(name, jobset, found["Failed"], tree)
            return
    if all("Complete" in conditions.get(key, {}) for key in jobs):
        status["conditions"] = [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted"}]
        return
    is_suspended = bool(spec.get("suspend"))
    status["conditions"] = [{"type": "Suspended", "status": "True"}] if is_suspended else []
    for member in spec["replicatedJobs"]:
        if jobs[member["name"]] is not None:
            jobs[member["name"]]["spec"]["suspend"] = is_suspended
        elif all("Complete" in conditions.get(one["name"], {}) for one in member.get("dependsOn", [])):
            _create(name, jobset, member, tree)


def _create(name: str, jobset: dict[str, Any], member: dict[str, Any], tree: dict[str, Any]) -> None:
    assert jobset["spec"]["network"]["enableDNSHostnames"]
    tree["services"][name] = {}
    spec = copy.deepcopy(member["template"]["spec"])
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    spec["template"]["spec"]["subdomain"] = name
    spec["template"]["metadata"]["labels"] |= {NAME: name, ATTEMPT: str(jobset["status"]["restarts"])}
    job = f"{name}-{member['name']}-0"
    tree["jobs"][job] = {"metadata": {"name": job}, "spec": spec, "status": {"conditions": []}}


def _fail(name: str, jobset: dict[str, Any], failed: dict[str, Any], tree: dict[str, Any]) -> None:
    """Do what the first rule says that the failure of a Job matches; without one, start all again, and count that."""
    policy, status = jobset["spec"]["failurePolicy"], jobset["status"]
    action = "RestartJobSet"
    for rule in policy["rules"]:
        messages = rule.get("onJobFailureMessagePatterns", [""])
        if failed["reason"] in rule["onJobFailureReasons"] and any(re.search(m, failed["message"]) for m in messages):
            action = rule["action"]
            break
    reason = None
    if action == "FailJobSet":
        reason = "FailJobSetFailurePolicyAction"
    elif action == "RestartJobSet":
        if status["counted"] >= policy["maxRestarts"]:
            reason = "ReachedMaxRestarts"
        status["counted"] += 1
    else:
        assert action == "RestartJobSetAndIgnoreMaxRestarts"
    if reason is not None:
        status["conditions"] = [{"type": "Failed", "status": "True", "reason": reason, "message": failed["message"]}]
        return
    status["restarts"] += 1
    for pod in tree["pods"].values():  # kept under no name, for the tests to count
        if pod["metadata"]["labels"].get(NAME) == name:
            del pod["metadata"]["labels"][NAME]
            pod["metadata"]["labels"][JOB] = ""
    for job in [job for job in tree["jobs"] if job.startswith(f"{name}-")]:
        del tree["jobs"][job]
