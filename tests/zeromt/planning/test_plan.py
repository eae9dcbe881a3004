"""`zeromt plan` from end to end: figures, errors."""

import json
from typing import Any

import pytest

from configs import load_run
from tests.conftest import Call, Corpus, Refused
from zeromt.cli.main import main
from zeromt.planning.command import HOST_SECONDS, Cluster, Planner

CLUSTER = ["--nodes", "2", "--gpus-per-node", "8", "--gpu-memory", "80GB"]
H100 = {
    ("vaswani_base", 3_200): (59_549, 43_398),
    ("vaswani_base", 16_384): (323_276, 303_908),
    ("vaswani_base", 32_768): (325_354, 336_884),
    ("vaswani_big", 3_200): (46_518, 40_715),
    ("vaswani_big", 16_384): (186_347, 166_439),
    ("vaswani_big", 32_768): (180_399, 202_294),
}
"""Target tokens a second with plain PyTorch and with the kernels, as docs/gpus.md has them."""


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_the_report_names_everything(call: Call) -> None:
    done = call("plan", "wmt_base", *CLUSTER)
    assert done.code == 0
    for words in ("decoder cross-attention", "  ZeRO-3 ", "days", "assumed", "vocabularies as prepare.tokenizer says"):
        assert words in done.out
    assert "8 GPUs idle: an update has 8 micro-batches" in done.out


@pytest.mark.parametrize(("preset", "tokens"), H100)
def test_speed_is_within_a_half_of_what_one_h100_said(preset: str, tokens: int) -> None:
    budgets = [f"stream.target_tokens={tokens}", f"stream.source_tokens={tokens}", "stream.micro_batches=1"]
    config = load_run("wmt_base", [f"preset={preset}", *budgets])
    planned = Planner(config, Cluster(gpu="h100"), length=27.0).plan()["chosen"]["tokens_per_second"]
    for measured in H100[preset, tokens]:
        assert 1 / 1.5 < planned / measured < 1.5


def test_figures_hang_together(capsys: pytest.CaptureFixture[str]) -> None:
    report = plan(capsys, "wmt_big", *CLUSTER, "--mfu", "0.5")
    chosen, parameters = report["chosen"], sum(report["parameters"].values())
    assert chosen["setting"]["stage"] == 0, "the lowest stage unless another is a tenth faster"
    assert chosen["checkpoint_bytes"] == 12 * parameters
    assert chosen["sent"] == pytest.approx((4 + 2) * parameters * 15 / 16), "as stage 1, in bf16"
    assert chosen["days"] == pytest.approx(chosen["updates"] * chosen["seconds"] / 86_400)
    assert chosen["seconds"] == pytest.approx(max(12 * HOST_SECONDS, chosen["sent"] / 50e9))
    averaged = plan(capsys, "wmt_big", *CLUSTER, "training.ema_decay=0.999")
    assert averaged["chosen"]["checkpoint_bytes"] == 16 * parameters


def test_less_memory_takes_a_higher_stage_then_checkpointing_and_offload(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = []
    for memory in ("80GB", "5GB", "4GB"):
        report = plan(capsys, "wmt_big", "--gpus-per-node", "8", "--gpu-memory", memory)
        assert report["chosen"]["memory"]["peak"] <= report["usable_memory"]
        setting = report["chosen"]["setting"]
        chosen.append((setting["offload"], setting["checkpointing"], setting["stage"]))
    assert chosen == sorted(chosen)
    assert len(set(chosen)) > 1


def test_a_prepared_dataset_gives_vocabulary_and_lengths(
    corpus_en_fr: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((corpus_en_fr.folder / "index.json").read_text())
    report = plan(capsys, "debug", "--gpu-memory", "8GB", *corpus_en_fr.overrides)
    assert report["parameters"]["embedding"] == index["tokenizer"]["source_vocab_size"] * 32
    lengths = (index[f"{side}_tokens"] / index["pairs"] + 1 for side in ("source", "target"))
    said = "sentences of {} source and {} target tokens".format(*(round(length / 0.9) for length in lengths))
    assert said in " ".join(report["assumptions"])


BAD = [
    (["--nodes", "0"], "argument --nodes: '0'"),
    (["--gpu-memory", "80XB"], "argument --gpu-memory: '80XB'"),
    (["--gpu", "abacus"], "argument --gpu: invalid choice: 'abacus'"),
    (["--mfu", "1.5"], "argument --mfu: '1.5'"),
    (["--gpu-memory", "1.1GB"], "--gpu-memory: 1.1GB (0.0249GB for tensors) is too small for micro-batches of"),
    (["optimizer.lr=0"], "optimizer.lr: 0"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(arguments: list[str], expected: str, refused: Refused) -> None:
    assert refused("plan", "wmt_big", *CLUSTER, *arguments).startswith(expected)
