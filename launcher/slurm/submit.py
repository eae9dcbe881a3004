"""`zeromt launch slurm`: sends a training, or any command, as jobs; or shows what would be sent."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import Plugin, UserError, load_run
from configs.plugins import keep_copies, variables
from configs.process.files import disk_errors
from configs.process.streams import hidden, note
from launcher import resolve
from launcher.slurm.profile import Profile, load_profile
from launcher.slurm.queue import GONE, exit_code, find_job, sbatch, wait_for
from launcher.slurm.record import begin, held, read
from launcher.slurm.script import Job, log_of, render_command, render_training
from launcher.slurm.size import check_size, choose_lead, describe
from launcher.start.run_folder import check_in_child, make_ready
from trainer.runs.layout import LOGS, METRICS_FILE
from trainer.runs.parents import check_beginning

_IN_PARTS = ("prepare", "translate", "score")
_PLAIN = re.compile(r"(NCCL|GLOO|UCX|FI|OMP|KMP|MKL|CUDA|TORCH|PYTORCH)_")
"""Variables that are settings of a library, and so no secrets."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sending:
    """What is sent together."""

    folder: Path
    """The run's; for a command the current one."""
    command: Sequence[str] = ()
    """Of a command its job's name and its words."""
    plugins: Sequence[Plugin] = ()
    """Of a run."""
    job: Job
    scripts: Sequence[str]
    amount: Sequence[str]
    """Lines on how much is asked for."""


def launch(
    *,
    site: str | None,
    settings: Sequence[str],
    time: str | None,
    gpus_per_node: int | None,
    words: Sequence[str],
    wait: bool,
    dry_run: bool,
    fresh: bool,
    **arguments: Any,
) -> int:
    """Send jobs, or print what would be sent.

    Args:
        site: file or name of a profile; None: the defaults.
        settings: fields of the profile, which `time` and `gpus_per_node` are, too.
        time: the time limit.
        gpus_per_node: of every node.
        words: a command; none for a training.
        wait: adopt jobs that were sent before, and end as they do.
        dry_run: print only, with `***` for values of the profile's `environment`.
        fresh: start at step 0, and rename an existing run.
        arguments: those of a training or of a command.

    Returns:
        0, with the jobs' numbers on stdout, one a line; with `wait`, the exit code of the last job.

    Raises:
        UserError: a value is wrong, or SLURM refuses.
    """
    profile = load_profile(site, settings, {"time": time, "gpus_per_node": gpus_per_node})
    if dry_run:
        shown = {name: text if _PLAIN.match(name) else "***" for name, text in profile.environment.items()}
        profile = dataclasses.replace(profile, environment=shown)
    sending = (_command if words else _training)(profile, words=words, fresh=fresh, **arguments)
    has_cores = profile.cpus_per_node or {"exclusive", "cpus-per-gpu"} & profile.sbatch.keys()
    if profile.gpus_per_node and not has_cores:
        note(
            f"warning: cpus_per_node: none with {profile.gpus_per_node} GPUs on each node, and SLURM then gives one "
            f"core unless the site says otherwise; give it, such as --set cpus_per_node={8 * profile.gpus_per_node}"
        )
    if dry_run:
        asked = [arguments[name] for name in ("config", "overrides", "plugins")]
        if not words and (code := check_in_child(*asked)):
            return code
        print("\n".join(map(hidden, sending.scripts)), end="", flush=True)
        for line in sending.amount:
            note(line)
        return 0
    jobs, log = _send(sending, fresh=fresh, wait=wait)
    ends = f"scancel {' '.join(jobs)}" if words else f"zeromt stop {sending.folder}"
    note(f"job {', '.join(jobs)}; its log is {log}-{jobs[0]}{'_*' if arguments['array'] else ''}.out; `{ends}` ends it")
    if not wait:
        return 0
    code = wait_for(jobs, log)
    with held(sending.folder, sending.command) as file:
        if read(file)[1] == jobs:
            file.truncate(0)
    return code


def _training(
    profile: Profile,
    *,
    config: str | None,
    overrides: Sequence[str],
    plugins: Sequence[str],
    nproc: int | None,
    job_name: str | None,
    after: int | None,
    fresh: bool,
    parent: str | None,
    array: int | None,
    words: Sequence[str],
    nodes: str = "1",
    max_restarts: int = 3,
    chain: int = 1,
) -> Sending:
    if array is not None:
        raise UserError("--array: no command; give one behind `--`, such as --array 4 -- zeromt prepare CONFIG")
    if config is None:
        raise UserError("CONFIG: none given; give one, or a command behind `--`")
    run = load_run(config, overrides, plugins=plugins)
    folder = Path(run.folder)
    if after is None:
        resolve("launcher.start.datasets:check_datasets")(run, config, overrides, plugins, parent=parent)
        check_beginning(folder, parent, fresh=fresh)
    nproc = nproc or profile.gpus_per_node
    check_size(run, profile, nodes, nproc)
    lead = choose_lead(profile, folder / METRICS_FILE)
    job = Job(
        folder=str(Path.cwd()),
        name=job_name or run.name,
        logs=str(folder.absolute() / LOGS),
        after=after,
        variables=variables(config, run.plugins, folder),
    )
    site = profile if chain == 1 else dataclasses.replace(profile, max_requeues=0)
    limits = ["--max-restarts", str(max_restarts), "--max-requeues", str(site.max_requeues), "--link"]
    given = {
        "run": str(folder),
        "config": config,
        "overrides": overrides,
        "node_options": [*(["--nproc", str(nproc)] if nproc else []), *(["--from", parent] if parent else [])],
    }
    scripts = [
        render_training(site, job, nodes=nodes, lead=lead, limits=[*limits, str(link + 1)], **given)
        for link in range(chain)
    ]
    amount = describe(site, nodes, nproc, lead, chain)
    return Sending(folder=folder, plugins=run.plugins, job=job, scripts=scripts, amount=amount)


def _command(
    profile: Profile, *, words: Sequence[str], job_name: str | None, after: int | None, array: int | None, **others: Any
) -> Sending:
    for name, value in others.items():
        if value:
            shown = "CONFIG, settings" if name in ("config", "overrides") else f"--{name.replace('_', '-')}"
            raise UserError(f"{shown}: not with a command behind `--`, which is not a training run; leave it out")
    is_zeromt = words[0] == "zeromt" and len(words) > 1
    job = Job(
        folder=str(Path.cwd()),
        name=job_name or (words[1] if is_zeromt else Path(words[0]).name),
        logs=str(Path(LOGS).absolute()),
        after=after,
    )
    if array is None:
        scripts = [render_command(profile, job, words)]
    elif is_zeromt and words[1] in _IN_PARTS:
        part, merge = ([*words[:2], *share, *words[2:]] for share in (["--part", "slurm"], ["--merge"]))
        scripts = [render_command(profile, job, part, parts=array), render_command(profile, job, merge)]
    else:
        raise UserError(
            f"--array: {' '.join(words[:2])!r} behind `--` has no parts; allowed is zeromt {', '.join(_IN_PARTS)}"
        )
    hours, tasks = profile.seconds / 3600, 1 if array is None else array + 1
    return Sending(
        folder=Path.cwd(),
        command=[job.name, *words],
        job=job,
        scripts=scripts,
        amount=[f"tasks: {tasks}; hours: {hours:g}; at most {hours * tasks:,.10g} node hours"],
    )


def _send(sending: Sending, *, fresh: bool, wait: bool) -> tuple[list[str], str]:
    """Send jobs, each to start after the one before; their numbers, and where their logs are.

    With `wait`, jobs that were sent before are taken: as long as one is in the queue, or until somebody has waited for
    their exit code. If interrupted, the same command sends those that are missing.
    """
    log = log_of(sending.job)
    told = {"folder": str(sending.folder.resolve()), "command": [*sending.command], "log": log, "wait": wait}
    with held(sending.folder, sending.command) as file:
        before, jobs = read(file)
        is_there = any(state is not None and state.state != GONE for state in map(find_job, jobs))
        is_untold = before.get("wait") and exit_code(jobs, log) is not None
        if wait and (is_there or is_untold):
            log = before.get("log", log)
        else:
            jobs = []
            sbatch(sending.scripts[0], "--test-only")  # before a folder is made or renamed
            if not sending.command:
                make_ready(str(sending.folder), fresh=fresh)
                keep_copies(sending.folder, sending.plugins)
            with disk_errors("output", Path(sending.job.logs)):
                Path(sending.job.logs).mkdir(parents=True, exist_ok=True)
            begin(file, told)
        for script in sending.scripts[len(jobs) :]:
            after = "afterok" if sending.command else "afterany"
            follows = [f"--dependency={after}:{jobs[-1]}", "--kill-on-invalid-dep=yes"] if jobs else []
            sbatch(script, "--parsable", *follows, stdout=file)
            jobs = read(file)[1]
    print("\n".join(jobs), flush=True)
    return jobs, log
