"""The manifest of docs/kubernetes.md, against the schema of what it holds and the command line that it calls."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docs.pages import blocks
from zeromt.cli.main import parse

SCHEMA = yaml.safe_load((Path(__file__).parent / "jobset.schema.yaml").read_text())


def manifest() -> Any:
    (block,) = (block for block in blocks() if block.page == "docs/kubernetes.md" and block.language == "yaml")
    return yaml.safe_load(block.text)


def test_manifest_is_what_a_cluster_takes() -> None:
    jobset = manifest()
    jsonschema.validate(jobset, SCHEMA)
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["completion"] = 2
    with pytest.raises(jsonschema.ValidationError, match="'completion' was unexpected"):
        jsonschema.validate(jobset, SCHEMA)


def test_its_pods_are_the_nodes_of_one_job() -> None:
    jobset = manifest()
    job = jobset["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    words = pod["containers"][0]["command"]
    for variable in pod["containers"][0]["env"]:
        words = [word.replace(f"$({variable['name']})", "0") for word in words]
    command, arguments = parse(words[1:])
    assert command.summary.startswith("train on several machines")
    assert arguments["nnodes"] == job["template"]["spec"]["completions"] == job["template"]["spec"]["parallelism"]
    name = jobset["metadata"]["name"]
    assert arguments["rendezvous"][0] == f"{name}-{job['name']}-0-0.{name}"
    codes = [rule["onExitCodes"]["values"] for rule in job["template"]["spec"]["podFailurePolicy"]["rules"][:2]]
    assert codes == [[2], [75]]
