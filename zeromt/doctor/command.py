"""`zeromt doctor [CONFIG]`: what can be checked before a run is started."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from configs import RunConfig, load_run
from configs.process.gpus import gpus_to_use, num_gpus
from launcher.start.datasets import check_datasets
from zeromt.doctor import checks
from zeromt.doctor.checks import Finding
from zeromt.doctor.exchange import exchange

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
    all_findings = []
    for finding in findings(config, overrides, plugins):
        all_findings.append(finding)
        if not as_json:
            fix = f"\n{'':21} -> {finding.fix}" if finding.fix else ""
            print(f"{_SHOWN[finding.grade]:6} {finding.subject:14} {finding.said}{fix}", flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in all_findings], indent=1))
    return int(any(finding.grade == "fault" for finding in all_findings))


def findings(config: str | None, overrides: Sequence[str], plugins: Sequence[str]) -> Iterator[Finding]:
    """The findings of every check, the quick checks first."""
    section: RunConfig | None = None

    def read() -> str:
        nonlocal section
        section = load_run(str(config), overrides, plugins=plugins)
        return f"{config} is valid"

    def device(run: RunConfig) -> str:
        gpus_to_use(run.engine.device, os.environ)
        return f"{run.engine.device} can be used"

    def prepared(run: RunConfig) -> str:
        check_datasets(run, str(config), overrides, plugins)
        return f"prepared: {', '.join(source.path for source in run.datasets)}"

    if config is not None:
        yield from checks.findings_of("configuration", read)
    yield checks.devices(os.environ)
    if section is not None:
        yield from checks.findings_of("engine.device", partial(device, section))
    yield from checks.packages()
    yield checks.open_files()
    yield checks.shared_memory(gpus=num_gpus(os.environ))
    yield from checks.folders(section)
    if section is not None:
        yield from checks.findings_of("dataset", partial(prepared, section))
    yield from exchange(gpus=num_gpus(os.environ))
