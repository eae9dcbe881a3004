"""`zeromt replay`: a fork is the run again, but for what is left out; and a corrupt dataset among ten is found."""

import json
import random
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, PrepareSection, TokenizerSection, load_run
from data_pipeline.preparation import prepare
from data_pipeline.tokenizer import Tokenizer
from tests.conftest import Refused, bundled
from tests.forked import Forked
from trainer.checkpoint.state import TrainerState
from trainer.limits import Limits
from zeromt.cli.main import main
from zeromt.inspecting.batch import block_of
from zeromt.inspecting.cause import read_data
from zeromt.inspecting.forks import _config, find_beginning
from zeromt.inspecting.found import find_update
from zeromt.inspecting.replay import recorded_losses

NAMES = [f"d{number}" for number in range(10)]
CORRUPT = "d6"
PAIRS = 60
"""Of each."""
CONFIG = """
name: ten
output: {root}/runs
stream: {{datasets: [{datasets}], micro_batches: 4, source_tokens: 96, target_tokens: 96, on_oversized_pair: drop}}
model: {{d_model: 32, encoder_layers: 1, decoder_layers: 1, attention: {{num_heads: 2}}, feed_forward: {{d_ff: 32}},
   max_positions: 256, dropout: 0.1}}
optimizer: {{lr: 1.0e-2}}
schedule: {{warmup_updates: 10}}
engine: {{zero_stage: 1, precision: fp32}}
training: {{max_updates: 116, log_every: 7, tensorboard: false}}
evaluation: {{every_updates: 0, max_pairs: 1}}
checkpoint: {{every_updates: 100}}
"""


@dataclass(kw_only=True, frozen=True)
class Ten:
    """A run on ten datasets, of which one is corrupt."""

    run: Path
    spike: int
    """Of the last updates that with the highest loss."""


def _noise(tokenizer: Tokenizer, lines: int) -> bytes:
    """Lines of pieces that are drawn evenly: nothing of them can be learnt."""
    draw = random.Random(7)
    pieces = [p for p in tokenizer.target_vocabulary() if p.strip("\u2581").isalpha()]
    made = ("".join(draw.choices(pieces, k=12)).replace("\u2581", " ").strip() for _ in range(lines))
    return "".join(f"{line}\n" for line in made).encode()


@pytest.fixture(scope="module")
def ten(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Ten:
    root = tmp_path_factory.mktemp("ten")

    def prepared(name: str, tokenizer: TokenizerSection, target: bytes, part: slice) -> None:
        (root / f"{name}.en").write_bytes(bundled("en", part))
        (root / f"{name}.fr").write_bytes(target)
        files = CorpusFiles(source=[f"{name}.en"], target=[f"{name}.fr"])
        prepare.run(
            PrepareSection(
                output=str(root / name),
                root=str(root),
                target_language="fr",
                train=files,
                valid=files if name == NAMES[0] else CorpusFiles(),
                tokenizer=tokenizer,
                pairs_per_block=32,
                workers=1,
            )
        )

    whole = slice(0, len(NAMES) * PAIRS)
    prepared("all", TokenizerSection(vocab_size=400), bundled("fr", whole), whole)
    same = TokenizerSection(path=str(root / "all"))
    for number, name in enumerate(NAMES):
        part = slice(number * PAIRS, (number + 1) * PAIRS)
        noise = _noise(Tokenizer.load(root / "all"), PAIRS)
        prepared(name, same, noise if name == CORRUPT else bundled("fr", part), part)
    config = root / "ten.yaml"
    config.write_text(CONFIG.format(root=root, datasets=", ".join(f"{{path: {root}/{name}}}" for name in NAMES)))
    done = forked.trainer(1, str(config), cwd=root)
    assert done.code == 0, done.err
    run = root / "runs" / "ten"
    losses = recorded_losses(run, 107, 117)
    return Ten(run=run, spike=max(losses, key=losses.__getitem__))


def rows(out: str) -> dict[int, list[str]]:
    lines = [line.split("\t") for line in out.splitlines() if not line.startswith("#")]
    return {int(line[0]): line[1:] for line in lines}


def replay(forked: Forked, run: Path, at: int, *more: str) -> dict[int, list[str]]:
    done = forked.zeromt("replay", str(run), "--at", str(at), *more, cwd=run)
    assert done.code == 0, done.err
    return rows(done.out)


def test_with_nothing_left_out_it_is_the_run_again(ten: Ten, forked: Forked) -> None:
    """To the last bit that is kept, with dropout, in a mixture."""
    found = replay(forked, ten.run, 110, "--updates", "7")
    assert list(found) == list(range(101, 117))
    assert {(line[2], line[3]) for line in found.values()} == {("+0.000000", "0")}


def test_a_dataset_is_left_out(ten: Ten, forked: Forked) -> None:
    found = replay(forked, ten.run, ten.spike, "--without-dataset", CORRUPT)
    own, replayed, _, num_left_out = found[ten.spike]
    update = find_update(ten.run, ten.spike)
    corrupt = [m.num_pairs for m in update.micro_batches if NAMES[m.dataset] == CORRUPT]
    assert int(num_left_out) == sum(corrupt) > 0, "the spike is of the corrupt dataset"
    usual = statistics.median(recorded_losses(ten.run, ten.spike - 32, ten.spike).values())
    assert float(own) - float(replayed) > 0.5 * (float(own) - usual) > 0


def test_blocks_are_those_that_batch_shows(ten: Ten) -> None:
    data, update = read_data(find_beginning(ten.run, ten.spike), ten.spike), find_update(ten.run, ten.spike)
    for m in update.micro_batches:
        shown = [block_of(*update.place(m, row)) for row in range(m.num_pairs)]
        assert (data.blocks_of(m.pair_ids) - data.first_blocks[m.dataset]).tolist() == shown
    assert {pair for m in update.micro_batches for pair in m.pair_ids.tolist()} <= set(data.pairs.tolist())


def test_pairs_are_left_out_and_nothing_else_moves(resumed: Path, forked: Forked, tmp_path: Path) -> None:
    """The update is the mean of what remains, by the losses that `zeromt batch` tells of each pair."""
    done = forked.zeromt("batch", str(resumed), "100", "--loss", "--json", cwd=resumed)
    pairs: list[dict[str, Any]] = [json.loads(line) for line in done.out.splitlines()]
    left_out, remain = pairs[::3], [pair for number, pair in enumerate(pairs) if number % 3]
    file = tmp_path / "pairs.tsv"
    file.write_text("#pair\tdataset\n" + "".join(f"{pair['pair']}\tprepared\n" for pair in left_out))
    found = replay(forked, resumed, 100, "--without-pairs", str(file))
    expected = sum(pair["loss"] for pair in remain) / sum(pair["target_tokens"] for pair in remain)
    assert float(found[100][1]) == pytest.approx(expected, rel=1e-5)
    assert int(found[100][3]) == len(left_out)


def test_a_corrupt_dataset_is_found(ten: Ten, forked: Forked) -> None:
    done = forked.zeromt("replay", str(ten.run), "--at", str(ten.spike), "--blame", cwd=ten.run)
    assert done.code == 0, done.err
    assert f"behind it: {CORRUPT}: without, the loss is " in done.out
    assert "# stopping rule: halve what is left out, until one is left or neither half takes 50%" in done.out
    said = [line for line in done.out.splitlines() if line.startswith("replay ")]
    assert done.out.splitlines()[-1] == f"# {len(said)} replays in all"
    assert re.search(r"^# (9|10) datasets: at most 8 replays$", done.out, re.M)
    assert "# 2 blocks: at most 2 replays" in done.out, "of the dataset that it came to"
    assert len(said) <= 1 + 8 + 2


def test_blame_refuses_by_the_kept_losses_before_it_trains(ten: Ten, forked: Forked) -> None:
    losses = recorded_losses(ten.run, 101, 121)
    lowest = min(losses, key=losses.__getitem__)
    done = forked.zeromt("replay", str(ten.run), "--at", str(lowest), "--blame", cwd=ten.run)
    assert done.code == 2
    said = f"--blame: the loss of update {lowest} is {losses[lowest]:.4f}, and "
    assert said in done.err
    assert "replay" not in done.out


def test_spikes_are_listed_with_how_to_look_at_each(
    ten: Ten, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that this run's losses have: by the median of all before, of which there are fewer than the window has."""
    losses = recorded_losses(ten.run, 1, 117)
    excess = {step: losses[step] - statistics.median(losses[s] for s in range(1, step)) for step in range(17, 117)}
    largest = sorted(excess, key=excess.__getitem__, reverse=True)[:3]
    assert main(["replay", str(ten.run), "--spikes", "3"]) == 0
    out = capsys.readouterr().out
    found = rows(out)
    assert list(found) == largest
    for step, (loss, _, above, _, command) in found.items():
        assert (loss, above) == (f"{losses[step]:.4f}", f"{excess[step]:.4f}")
        assert command == f"zeromt batch {ten.run} {step}{' --loss' if step > 100 else ''}", "if a checkpoint is before"
        assert main(command.split()[1:]) == 0
    after = [step for step in largest if step > 100]
    last = f"replay {ten.run} --at {after[0]} --blame" if after else "none is kept: checkpoint.keep_every"
    assert out.splitlines()[-1].endswith(last)
    capsys.readouterr()
    assert "--spikes: lists updates and replays none" in refused("replay", str(ten.run), "--spikes", "--blame")
    assert "not allowed with argument" in refused("replay", str(ten.run), "--spikes", "--at", "110")
    assert "one of the arguments --at --spikes is required" in refused("replay", str(ten.run))


def test_the_run_is_left_as_it_is(ten: Ten, forked: Forked) -> None:
    before = {path: path.stat().st_mtime_ns for path in ten.run.rglob("*")}
    replay(forked, ten.run, 101)
    assert {path: path.stat().st_mtime_ns for path in ten.run.rglob("*")} == before


def test_refused(ten: Ten, refused: Refused, tmp_path: Path) -> None:
    at = ("replay", str(ten.run), "--at", "110")
    assert "--without-dataset: there is no dataset of the run 'd66'; did you mean d6?" in refused(
        *at, "--without-dataset", "d66"
    )
    file = tmp_path / "pairs"
    file.write_text("5\n600\n")
    assert refused(*at, "--without-pairs", str(file)).endswith(
        "line 2: '600'; allowed is the number of a pair, below 600"
    )
    file.write_text("# nothing\n")
    assert "has no numbers; allowed is the number of a pair first on each line" in refused(
        *at, "--without-pairs", str(file)
    )
    assert "RUN: " in refused("replay", str(ten.run), "--at", "100")
    assert refused(*at, "--blame", "--updates", "2").startswith("--blame: finds what to leave out by itself")


def test_neither_the_clock_nor_early_stopping_ends_a_fork(tmp_path: Path) -> None:
    limits = ["training.max_minutes=1", "training.early_stopping={patience: 1}", "evaluation.every_updates=1"]
    config = load_run("debug", limits)
    state = TrainerState(step=5, seconds=3600.0, scores={1: 2.0, 2: 1.0})
    assert len(Limits(config, state).reached(0)) == 2
    assert not Limits(_config(config, tmp_path), state).reached(0)
