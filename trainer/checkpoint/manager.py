"""Saving, finding and keeping checkpoints, all ranks together."""

import dataclasses
import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from configs import CheckpointSection
from trainer.checkpoint import format as format_
from trainer.checkpoint.format import Checkpoint, CheckpointError, FileRecord
from trainer.distributed import World
from trainer.engine import MOMENTS, Engine

log = logging.getLogger(__name__)


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class RunIdentity:
    """What every checkpoint of a run carries beside weights and state."""

    config_yaml: str
    tokenizer_files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    """Stage, precision, versions and fingerprints, for the manifest."""


class CheckpointManager:
    """Owns a run's `checkpoints/` folder."""

    def __init__(self, folder: Path, section: CheckpointSection, world: World, identity: RunIdentity) -> None:
        self._folder = folder
        self._section = section
        self._world = world
        self._identity = identity
        self.num_failures = 0
        """Saves that failed since the last good one."""

    def save(self, step: int, engine: Engine, state: Mapping[str, Any], *, scores: Mapping[int, float]) -> bool:
        """Write the checkpoint of a step, or nothing; False where any rank failed, and then the older ones stand.

        Two phases: every rank writes and syncs its share in a `tmp-` folder and all agree that it is there; then
        rank 0 writes the manifest, renames the folder and moves the `latest` pointer.

        Args:
            scores: validation BLEU by step, for the choice of what to keep.
        """
        if (self._folder / format_.step_folder(step)).exists():
            log.info("step %d is saved already", step)
            return True
        temporary = self._folder / f"tmp-{format_.step_folder(step)}"
        problem = self._on_main(lambda: _make_empty(temporary))
        records: dict[str, FileRecord] = {}
        if problem is None:
            try:
                records = self._write_share(temporary, engine)
                mine: str | None = None
            except OSError as error:
                mine = f"rank {self._world.rank}: {error}"
            answers = self._world.gather((records, mine))
            problem = next((p for _, p in answers if p is not None), None)
            records = {name: record for shares, _ in answers for name, record in shares.items()}
        if problem is None:
            problem = self._on_main(lambda: self._commit(temporary, step, state, records))
        if problem is not None:
            self.num_failures += 1
            self._on_main(lambda: shutil.rmtree(temporary, ignore_errors=True))
            log.error("checkpoint of step %d failed, the older ones stand: %s", step, problem)
            return False
        self.num_failures = 0
        self._on_main(lambda: self._retain(scores))
        return True

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, every byte of it verified; None where the folder holds no checkpoint at all.

        What is broken on the way is named in the log. The ranks share the work of hashing.

        Raises:
            CheckpointError: there are checkpoints, and none of them is whole.
        """
        names = self._world.from_main([p.name for p in format_.list_steps(self._folder)])
        for name in names:
            problems = self._problems(self._folder / name)
            if not problems:
                checkpoint = format_.read_checkpoint(self._folder / name)
                self._on_main(lambda name=name: self._point_to(name))
                return checkpoint
            for problem in problems:
                log.warning("checkpoint refused: %s", problem)
        if names:
            raise CheckpointError(
                f"checkpoints: none of {len(names)} in {self._folder} is whole; "
                "allowed is at least one, or another output or name for a new run"
            )
        return None

    def _write_share(self, folder: Path, engine: Engine) -> dict[str, FileRecord]:
        """Gather every parameter, keep and write this rank's own."""
        rank, size = self._world.rank, self._world.size
        model: dict[str, torch.Tensor] = {}
        optimizer: dict[str, torch.Tensor] = {}
        mine = set(format_.share_out(engine.parameter_sizes(), size)[rank])
        for parameter in engine.parameter_states():
            if parameter.name not in mine:
                continue
            model[parameter.name] = parameter.weight.detach().to("cpu", copy=True).contiguous()
            for key in MOMENTS if parameter.moments is not None else ():
                assert parameter.moments is not None
                moment = parameter.moments[key].detach().to("cpu", torch.float32, copy=True)
                optimizer[f"{key}/{parameter.name}"] = moment.contiguous()
        records = {}
        for kind, tensors in (("model", model), ("optimizer", optimizer)):
            name = format_.shard_name(kind, rank, size)
            records[name] = format_.write_tensors(folder / name, tensors)
        return records

    def _commit(self, temporary: Path, step: int, state: Mapping[str, Any], records: dict[str, FileRecord]) -> None:
        extra = {
            format_.STATE: (json.dumps(state, indent=1) + "\n").encode(),
            format_.CONFIG: self._identity.config_yaml.encode(),
            **self._identity.tokenizer_files,
        }
        for name, content in extra.items():
            records[name] = format_.write_bytes(temporary / name, content)
        manifest = {
            "format": format_.FORMAT,
            "step": step,
            "world_size": self._world.size,
            **self._identity.manifest,
            "files": {name: dataclasses.asdict(record) for name, record in records.items()},
        }
        format_.write_manifest(temporary, manifest)
        format_.sync_folder(temporary)
        temporary.rename(self._folder / format_.step_folder(step))
        format_.sync_folder(self._folder)
        self._point_to(format_.step_folder(step))

    def _point_to(self, name: str) -> None:
        """Let `latest` name a folder, atomically."""
        pointer = self._folder / "latest"
        if pointer.is_file() and pointer.read_bytes() == f"{name}\n".encode():
            return
        beside = self._folder / "tmp-latest"
        format_.write_bytes(beside, f"{name}\n".encode())
        beside.replace(pointer)
        format_.sync_folder(self._folder)

    def _retain(self, scores: Mapping[int, float]) -> None:
        """Delete what is neither among the last nor the best; renamed first, so that no half of it counts."""
        steps = {step: p for p in format_.list_steps(self._folder) if (step := format_.step_of(p)) is not None}
        best = sorted((s for s in steps if s in scores), key=lambda s: (-scores[s], -s))[: self._section.keep_best]
        keep = {*sorted(steps)[-self._section.keep_last :], *best}
        for step, folder in steps.items():
            if step not in keep:
                doomed = folder.with_name(f"tmp-delete-{folder.name}")
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)

    def _problems(self, folder: Path) -> list[str]:
        """What is wrong with a checkpoint, found by all ranks together."""
        mine: list[str] = []
        try:
            checkpoint = format_.read_checkpoint(folder)
            names = sorted(checkpoint.files)[self._world.rank :: self._world.size]
            mine = [p for name in names if (p := format_.file_problem(checkpoint, name)) is not None]
        except CheckpointError as error:
            mine = [str(error)]
        found = [p for problems in self._world.gather(mine) for p in problems]
        return list(dict.fromkeys(found))

    def _on_main(self, action: Any) -> str | None:
        """Do something on rank 0; every rank learns what went wrong there, if anything did."""
        problem: str | None = None
        if self._world.is_main:
            try:
                action()
            except OSError as error:
                problem = str(error)
        answer: str | None = self._world.from_main(problem)
        return answer


def _make_empty(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    for leftover in folder.parent.glob("tmp-*"):  # of a save that was cut off
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    folder.mkdir()
