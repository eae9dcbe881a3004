"""Rows 14, 15, 16 and 22: checkpoints and shards that are not what was written."""

import pickle
import shutil
from contextlib import closing
from pathlib import Path

from tests.conftest import Corpus
from tests.faults.conftest import SETTINGS, Canary, MakeRun, Run, injected
from tests.faults.injected import Fault, write_plan
from tests.faults.injected_runs import run_all
from tests.forked import Forked


def test_broken_checkpoints(undisturbed: Run, make_run: MakeRun, forked: Forked, tmp_path: Path) -> None:
    """Rows 14, 15 and 16: refused by name, never unpickled, the one before is used; nothing begins at 0 unasked."""
    canary = tmp_path / "sang"
    poison = pickle.dumps(Canary(canary))
    run = make_run(after=(undisturbed, 20))
    newest, second = run.checkpoint(20), run.checkpoint(15)
    (newest / "optimizer-00001-of-00002.safetensors").write_bytes(poison)
    (second / "state.json").write_bytes((second / "state.json").read_bytes()[:-20])
    (run.folder / "checkpoints" / "latest").write_bytes(poison)
    for folder in (run.folder, run.folder / "checkpoints", *run.folder.glob("checkpoints/step-*")):
        for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_optim_states.pt", "state.pkl", "pytorch_model.bin"):
            (folder / name).write_bytes(poison)
    done = forked.trainer(2, "debug", *run.settings, cwd=tmp_path)
    assert done.code == 0, done.err[-4000:]
    said = done.out + done.err
    assert f"{newest / 'optimizer-00001-of-00002.safetensors'}" in said
    assert f"{second / 'state.json'}" in said
    assert f"resumed from {run.checkpoint(10)}" in said
    run.assert_same(undisturbed)
    assert run.complete_steps() == [5, 10, 15, 20]
    assert run.pointer() == "step-00000020"
    assert not canary.exists()


def test_broken_shards(corpus_en_fr: Corpus, shim: Path, tmp_path: Path) -> None:
    """Row 22: a shard that changes under a run stops it by name."""
    prepared = tmp_path / "data"
    shutil.copytree(corpus_en_fr.folder, prepared)
    [shard] = prepared.glob("train-*.tar")
    settings = (
        f"prepare.output={prepared}",
        *corpus_en_fr.overrides[1:],
        *SETTINGS,
        *(f"output={tmp_path}", "name=stops", "stream.window_pairs=64", "stream.prefetch_updates=1"),
        *("training.max_updates=1000", "training.max_epochs=2"),
        *("stream.source_tokens=1024", "stream.target_tokens=1024", "evaluation.every_updates=0"),
    )
    run = Run(folder=tmp_path / "stops", plan=tmp_path / "plan", settings=settings)
    write_plan(run.plan, [Fault(point="accumulate", action="flip", step=5, value=str(shard))])
    with closing(Forked(*injected(shim, run))) as forked:
        [[(stopped, _)]] = forked.ranks(1, run_all, [(run.settings, run.plan)], cwd=tmp_path)
    assert stopped.startswith("DataError: ")
    assert "train-000000.tar" in stopped
    assert len(stopped.splitlines()) == 1
    assert run.last_logged() >= 5
