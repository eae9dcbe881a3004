"""`zeromt launch slurm`: batch scripts made, shown or submitted."""

import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_run
from configs.plugins import keep_copies, pins_of, variables
from configs.site import SiteSection, format_time, load_site, parse_time
from launcher.agents.job import check_datasets
from launcher.agents.run_folder import make_ready
from launcher.clusters.slurm.script import Preparation, Training, most_nodes, render_preparation, render_training
from trainer.runs.layout import LOGS, METRICS_FILE
from trainer.runs.metrics_file import read_saves
from trainer.runs.process.streams import note

_SHORTEST_LEAD, _LONGEST_LEAD, _SAVES_IN_THE_LEAD = 300, 65_535, 3
"""Seconds; sbatch takes no longer one."""
_SBATCH_SECONDS = 120
_SITE_OPTIONS = ("gpus_per_node", "time", "partition", "account", "qos", "interface", "container_image")


def launch(
    *,
    config: str,
    overrides: Sequence[str],
    site: str | None,
    settings: Sequence[str],
    nodes: str,
    nproc: int | None,
    job_name: str | None,
    max_restarts: int,
    chain: int,
    prepare: int | None,
    after: int | None,
    fresh: bool,
    dry_run: bool,
    plugins: Sequence[str] = (),
    **site_options: Any,
) -> int:
    """Submit the jobs of a run, or of its preparation, or print their scripts.

    Args:
        config: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        site: a profile of a cluster.
        settings: `key=value`, which replace fields of the profile.
        nodes: a number, or MIN-MAX.
        nproc: processes on each node; None takes one for each GPU.
        job_name: in the queue; None takes the run's.
        max_restarts: of the ranks within a job.
        chain: jobs, each after the one before.
        prepare: shares of the corpus; None trains.
        after: a job that must have succeeded.
        fresh: begin at step 0, and rename the run that is there.
        dry_run: print the scripts only.
        plugins: files with components, beside those that the configuration names; the jobs read copies of them.
        site_options: fields of the profile that have an option of their own; None stands for the profile's.

    Returns:
        0, with the jobs' numbers on stdout, one a line.

    Raises:
        UserError: a value is wrong, or SLURM refuses the job.
    """
    run = load_run(config, overrides, plugins=plugins, say=note)
    profile = load_site(site, settings, {k: site_options[k] for k in _SITE_OPTIONS if site_options[k] is not None})
    common: dict[str, Any] = {
        "site": profile,
        "config": config,
        "overrides": tuple(overrides),
        "folder": str(Path.cwd()),
        "run": run.folder,
        "variables": variables(config, pins_of(run.plugins, Path(run.folder))),
        "name": job_name or run.name,
        "seconds": parse_time(profile.time),
        "after": after,
    }
    logs = Path(run.folder).absolute() / LOGS
    if prepare is not None:
        scripts = [
            render_preparation(Preparation(**common, output=f"{logs}/prepare-%A_%a.out", parts=prepare)),
            render_preparation(
                Preparation(**common, output=f"{logs}/prepare-%j.out", parts=prepare, is_merge=True),
            ),
        ]
    else:
        if after is None and not dry_run:
            check_datasets(run, config, overrides, plugins)
        check_size(run, nodes, nproc or profile.gpus_per_node)
        lead = choose_lead(profile, slowest_save(Path(run.folder) / METRICS_FILE))
        common |= {"output": f"{logs}/slurm-%j.out", "nodes": nodes, "lead": lead, "max_restarts": max_restarts}
        common["nproc"] = nproc or profile.gpus_per_node or None
        scripts = [render_training(Training(**common, link=k + 1, num_links=chain)) for k in range(chain)]
    if dry_run:
        print("\n".join(scripts), end="")
        return 0
    _submit(scripts, run, logs, is_preparation=prepare is not None, fresh=fresh)
    return 0


def check_size(run: RunConfig, nodes: str, nproc: int) -> None:
    """Refuse more ranks than the stream has lanes.

    Raises:
        UserError: there would be.
    """
    lanes, most = run.stream.micro_batches, most_nodes(nodes)
    if most * max(nproc, 1) > lanes:
        raise UserError(
            f"--nodes: {most} with {max(nproc, 1)} processes each is more than stream.micro_batches={lanes}; "
            f"allowed are {lanes} processes together"
        )


def choose_lead(site: SiteSection, save_seconds: float) -> int:
    """Seconds between the warning and the time limit.

    Args:
        site: its `signal_lead` counts, where it has one.
        save_seconds: of the slowest save that was measured; 0 where none was.

    Raises:
        UserError: the time limit leaves none to train in, or the lead none to save in.
    """
    limit = parse_time(site.time)
    measured = min(math.ceil(_SAVES_IN_THE_LEAD * save_seconds), _LONGEST_LEAD)
    lead = site.signal_lead or max(_SHORTEST_LEAD, measured)
    if lead <= save_seconds:
        raise UserError(
            f"signal_lead: {lead} is less than the run's slowest save took, {save_seconds:.0f} s; allowed is more"
        )
    if limit < lead + save_seconds:
        raise UserError(
            f"--time: {format_time(limit)} is less than signal_lead={lead} and a save of {save_seconds:.0f} s; "
            f"allowed is {format_time(lead + math.ceil(save_seconds))} or more"
        )
    return lead


def slowest_save(metrics: Path) -> float:
    """Seconds of the slowest save in a run's metrics.jsonl; 0 where there is none."""
    try:
        return max((save.seconds for save in read_saves(metrics)), default=0.0)
    except OSError:
        return 0.0


def _submit(scripts: Sequence[str], run: RunConfig, logs: Path, *, is_preparation: bool, fresh: bool) -> None:
    _sbatch(scripts[0], "--test-only")
    make_ready(run.folder, fresh=fresh)
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(logs)!r} cannot be made: {error.strerror}; allowed is a folder to write in"
        ) from error
    keep_copies(Path(run.folder), run.plugins)
    jobs: list[str] = []
    for script in scripts:
        options = []
        if jobs:
            kind = "afterok" if is_preparation else "afterany"
            options = [f"--dependency={kind}:{jobs[-1]}", *(["--kill-on-invalid-dep=yes"] if is_preparation else [])]
        jobs.append(_sbatch(script, "--parsable", *options))
        (logs / f"slurm-{jobs[-1]}.sh").write_text(script, encoding="utf-8")
        print(jobs[-1], flush=True)
    for line in _how_to_follow(jobs, run, logs, is_preparation=is_preparation):
        note(line)


def _how_to_follow(jobs: Sequence[str], run: RunConfig, logs: Path, *, is_preparation: bool) -> list[str]:
    if is_preparation:
        return [
            f"submitted job {jobs[0]} (the shares) and {jobs[1]} (their merge)",
            f"follow them:  squeue -j {','.join(jobs)};  tail -F {logs}/prepare-*.out",
            f"train after them:  zeromt launch slurm ... --after {jobs[1]}",
        ]
    return [
        f"submitted job {', '.join(jobs)}",
        f"follow it:  squeue -j {','.join(jobs)};  tail -F {logs}/slurm-{jobs[0]}.out;  zeromt status {run.folder}",
        f"save and end it:  zeromt stop {run.folder}",
    ]


def _sbatch(script: str, *options: str) -> str:
    """Run sbatch with a script on its stdin; the job's number, or "" of a test.

    Raises:
        UserError: it is not there, or refuses.
    """
    try:
        done = subprocess.run(
            ["sbatch", *options],
            input=script,
            env=submission_environment(os.environ),
            capture_output=True,
            text=True,
            timeout=_SBATCH_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("sbatch: no such command; allowed is a machine that submits jobs, or --dry-run") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"sbatch: no answer within {_SBATCH_SECONDS} s; allowed is a controller that answers"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UserError(f"sbatch: {said}; allowed is what this cluster takes, see --site, --set and --dry-run")
    number = done.stdout.strip().partition(";")[0]
    if "--parsable" in options and not re.fullmatch(r"[0-9]+", number):
        raise UserError(f"sbatch: {number!r} is no job's number; allowed is SLURM's own sbatch")
    return number


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What sbatch gets: without what an allocation around this process says of itself, which the job would inherit."""
    return {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
