"""Calls sbatch, and chooses how long before the time limit a job is warned."""

import math
import os
import re
import subprocess
from collections.abc import Mapping

from configs import UserError
from launcher.clusters.slurm.section import SlurmSection
from launcher.clusters.slurm.times import format_time, parse_time

_SHORTEST_LEAD, _LONGEST_LEAD, _SAVES_IN_THE_LEAD = 300, 65_535, 3
"""Seconds; the longest lead that sbatch accepts."""
_SBATCH_SECONDS = 120


def choose_lead(site: SlurmSection, save_seconds: float) -> int:
    """Seconds between the warning and the time limit.

    Args:
        site: its `signal_lead` is used if it is set.
        save_seconds: of the slowest save measured; 0 if none was.

    Raises:
        UserError: the time limit leaves no time to train, or the lead no time to save.
    """
    limit = parse_time(site.time)
    lead = site.signal_lead or max(_SHORTEST_LEAD, min(math.ceil(_SAVES_IN_THE_LEAD * save_seconds), _LONGEST_LEAD))
    if lead <= save_seconds:
        raise UserError(
            f"signal_lead: {lead} is less than the run's slowest save took, {save_seconds:.0f} s; give more"
        )
    if limit < lead + save_seconds:
        raise UserError(
            f"--time: {format_time(limit)} is less than signal_lead={lead} and a save of {save_seconds:.0f} s; "
            f"allowed is {format_time(lead + math.ceil(save_seconds))} or more"
        )
    return lead


def sbatch(script: str, *options: str) -> str:
    """Run sbatch with a script on its stdin; returns the job's number, or "" for a test.

    Raises:
        UserError: it is missing, or refuses.
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
        raise UserError("sbatch: no such command; use a machine that submits jobs, or --dry-run") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"sbatch: no answer within {_SBATCH_SECONDS} s; try again when the controller answers"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UserError(f"sbatch: {said}; ask for what this cluster takes, see --site, --set and --dry-run")
    number = done.stdout.strip().partition(";")[0]
    if "--parsable" in options and not re.fullmatch(r"[0-9]+", number):
        raise UserError(f"sbatch: {number!r} is no job's number; use SLURM's own sbatch")
    return number


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for sbatch, without variables of a surrounding allocation, which the job would inherit."""
    return {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
