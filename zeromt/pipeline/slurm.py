"""Steps as jobs on SLURM, each waited for by `zeromt launch slurm --wait`, which adopts what a killed one has sent."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from launcher.machine.supervise import Supervisor
from launcher.options.parser import Parser, read_arguments
from launcher.options.slurm import add_launch_slurm
from launcher.slurm.profile import Profile, load_profile
from launcher.slurm.queue import jobs_named
from launcher.slurm.script import python_of
from zeromt.pipeline.local import Local
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.work import Work, held, work_of


class Slurm(Local):
    """Sends steps to SLURM and waits for them. The jobs know nothing of the driver and outlive it."""

    at_once = 16

    def __init__(self, supervisor: Supervisor, pipeline: Pipeline) -> None:
        """Make one; SLURM is not asked before a step runs.

        Args:
            supervisor: knows of requests to stop; its signal handlers are in place.
            pipeline: its place names the site's profile.

        Raises:
            UserError: the profile has errors, or a step's `launch` has.
        """
        super().__init__(supervisor)
        place = pipeline.place
        settings = (f"{key}={json.dumps(value)}" for key, value in place.settings.items())
        options = [
            *([] if place.site is None else ["--site", place.site]),
            *(w for s in settings for w in ("--set", s)),
        ]
        self._options = {name: [*options, *shlex.split(step.launch)] for name, step in pipeline.steps.items()}
        self._profiles = {name: _profile(options) for name, options in self._options.items()}

    def work(self, pipeline: Pipeline, name: str, job: str) -> Work:
        """See `Runner`."""
        step, words = pipeline.steps[name], pipeline.words(name)
        launch = ["zeromt", "launch", "slurm", "--wait", *self._options[name], "--job-name", job]
        if step.is_zeromt("train"):
            return work_of(pipeline, name, [[*launch, *words[2:]]], None)
        if step.stdout is not None:
            program = [python_of(self._profiles[name]), "-P", "-m", "zeromt"] if step.is_zeromt() else words[:1]
            words = ["sh", "-c", 'exec "$@" >"$0"', pipeline.filled(step.stdout, name), *program, *words[1:]]
        array = [] if step.parts is None else ["--array", str(step.parts)]
        return work_of(pipeline, name, [[*launch, *array, "--", *words]], None)

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """The jobs of a try that are in the queue."""
        with held(lock):
            return jobs_named(job)


def _profile(options: Sequence[str]) -> Profile:
    """The site's profile, with options of `zeromt launch slurm`."""
    parser = Parser(prog="zeromt launch slurm", add_help=False)
    add_launch_slurm(parser)
    given = read_arguments(parser, options)
    return load_profile(given["site"], given["settings"], {name: given[name] for name in ("time", "gpus_per_node")})
