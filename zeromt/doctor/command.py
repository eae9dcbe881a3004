"""`zeromt doctor [CONFIG]`: everything that can be checked before a run is started."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from configs import RunConfig, load_run
from configs.errors import UserError
from configs.process.gpus import num_usable
from launcher.machine.cores import num_cores
from launcher.start.ranks import choose_processes
from zeromt.doctor import configured, machine
from zeromt.doctor.exchange import environment_without_torchrun, exchange
from zeromt.doctor.finding import Finding, good, refused
from zeromt.doctor.machine import packages

_SHOWN = {"good": "ok", "doubt": "doubt", "fault": "FAULT"}


def run(*, config: str | None, overrides: Sequence[str], plugins: Sequence[str], as_json: bool) -> int:
    """Print every finding, and for each fault or doubt what to do about it.

    Args:
        config: a YAML file, or the name of a shipped run; None checks only the machine.
        overrides: `section.key=value` settings.
        plugins: files with components.
        as_json: print a list of JSON objects instead of lines.

    Returns:
        1 if there is a fault, else 0.
    """
    results = []
    for finding in findings(config, overrides, plugins):
        results.append(finding)
        if not as_json:
            print(f"{_SHOWN[finding.grade]:6} {finding.subject:14} {finding.said}")
            if finding.mend:
                print(f"{'':6} {'':14} -> {finding.mend}", flush=True)
    counts = {grade: sum(finding.grade == grade for finding in results) for grade in _SHOWN}
    if as_json:
        print(json.dumps([asdict(finding) for finding in results], indent=1))
    else:
        print(f"{counts['fault']} faults, {counts['doubt']} doubts, {counts['good']} checks passed")
    return 1 if counts["fault"] else 0


def findings(config: str | None, overrides: Sequence[str], plugins: Sequence[str]) -> Iterator[Finding]:
    """The findings of every check, the quick checks first."""
    section: RunConfig | None = None
    gpus = num_usable()
    if config is not None:
        try:
            section = load_run(config, overrides, plugins=plugins)
            yield good("configuration", f"{config}: can be read, and all its fields are valid")
        except UserError as error:
            yield from refused("configuration", error)
    yield from machine.hardware()
    yield from machine.load()
    yield from packages()
    yield from machine.environment(os.environ)
    yield from machine.devices(os.environ)
    yield from machine.kernels(os.environ, gpus=gpus)
    yield from machine.open_files()
    yield from machine.shared_memory(gpus=gpus)
    yield from machine.names()
    yield from configured.folders(section)
    yield from machine.clock(configured.existing(Path(tempfile.gettempdir() if section is None else section.folder)))
    if section is not None and config is not None:
        yield from machine.asked_device(section.engine.device, os.environ)
        lanes = section.stream.micro_batches
        ranks = choose_processes(None, lanes, gpus=0 if section.engine.device == "cpu" else gpus, cores=num_cores())
        yield from configured.threads(os.environ, ranks=ranks)
        yield from configured.datasets(section, config, overrides, plugins)
    yield from configured.scores(section)
    yield from exchange(environment_without_torchrun(), gpus=gpus)
