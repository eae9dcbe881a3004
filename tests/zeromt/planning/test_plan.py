"""`zeromt plan` from end to end: figures, errors."""

import json
import math
from typing import Any

import pytest

from configs import load_run
from model.flops import BatchShape, model_flops
from model.gpus import GPUS
from model.parameters import Vocabularies
from tests.conftest import Call, Corpus, Refused
from zeromt.cli.main import main
from zeromt.planning.costs.communication import num_collectives
from zeromt.planning.costs.memory import MemoryModel, Setting
from zeromt.planning.hardware import PUBLISHED_MFU

CLUSTER = ["--nodes", "2", "--gpus-per-node", "8", "--gpu-memory", "80GB"]


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=_no_json)
    return found


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def test_the_report_names_everything(call: Call) -> None:
    done = call("plan", "wmt_base", *CLUSTER)
    assert done.code == 0
    for word in ("decoder cross-attention", "ZeRO-3 + offload + checkpointing", "days"):
        assert word in done.out
    assert "assumed" in done.out
    assert "vocabulary of 37000 pieces (prepare.tokenizer)" in done.out
    assert "(12 bytes per parameter)" in done.out
    assert max(map(len, done.out.splitlines())) < 180
    averaged = call("plan", "wmt_base", *CLUSTER, "training.ema_decay=0.999")
    assert "(16 bytes per parameter)" in averaged.out


def test_figures_hang_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--mfu", "0.5", "--peak-tflops", "100"]
    options += ["engine.zero_optimization={overlap_comm: false}"]
    found = plan(capsys, "wmt_base", *CLUSTER, *options)["chosen"]
    step = found["step"]
    slots = found["micro_batches"]["slots"]
    assert step["compute"] == pytest.approx(slots * step["flops"] / 50e12)
    assert step["seconds"] == pytest.approx(step["compute"] + step["communication"] + step["latency"])
    assert found["updates"] == load_run("wmt_base").training.max_updates
    assert found["days"] == pytest.approx(found["updates"] * step["seconds"] / 86_400)
    # weights of fp32 and two moments, over a ring of 16 ranks: gradients are summed in fp32, weights gathered in bf16
    parameters = found["checkpoint_bytes"] / 12
    assert step["sent"] == pytest.approx((2 * 4 + 2) * parameters * 15 / 16, rel=1e-4)


def test_what_is_beyond_all_numbers_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_base", *CLUSTER, "--mfu", "1e-306")
    assert found["chosen"]["days"] is None


def test_the_slowest_link_counts(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (
        plan(capsys, "wmt_base", *CLUSTER, "--inter-bandwidth", b)["chosen"]["step"] for b in ("10GB", "20GB")
    )
    assert slow["communication"] == pytest.approx(2 * fast["communication"])
    one_node = ["--nodes", "1", "--gpus-per-node", "8", "--gpu-memory", "80GB", "--intra-bandwidth", "100GB"]
    step = plan(capsys, "wmt_base", *one_node, "--inter-bandwidth", "1GB")["chosen"]["step"]
    assert step["communication"] == pytest.approx(step["sent"] / 100e9)


def test_less_memory_takes_a_higher_stage_then_smaller_micro_batches(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = []
    for memory in ("80GB", "7GB", "5GB", "3.2GB"):
        cluster = ["--nodes", "1", "--gpus-per-node", "8", "--gpu-memory", memory]
        found = plan(capsys, "wmt_big", *cluster)["chosen"]
        assert found["memory"]["peak"] <= found["cluster"]["usable_gpu_memory"]
        setting = found["memory"]["setting"]
        chosen.append((setting["offload"], setting["checkpointing"], found["step"]["seconds"]))
    assert chosen == sorted(chosen)
    assert len({each[:2] for each in chosen}) > 1


@pytest.mark.parametrize("preset", ["vaswani_base", "vaswani_big", "nllb_3b"])
@pytest.mark.parametrize("memory", ["80GB", "24GB"])
def test_the_quickest_stage_that_fits_is_chosen(preset: str, memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_big", *CLUSTER, "--gpu-memory", memory, f"preset={preset}")
    setting = found["chosen"]["memory"]["setting"]
    alike = [
        one for one in found["settings"]
        if all(one["memory"]["setting"][key] == setting[key] for key in ("offload", "checkpointing"))
    ]  # fmt: skip
    fitting = [one["step"]["seconds"] for one in alike if one["fits"]]
    assert found["chosen"]["step"]["seconds"] == min(fitting)


def test_memory_is_known_by_the_gpus_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_base", "--nodes", "1", "--gpus-per-node", "8", "--gpu", "l4")["chosen"]["cluster"]
    assert found["gpu_memory"] == 24 * 10**9


def test_times_say_whose_mfu_they_rest_on(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    """A default that no GPU has shown is called so, with what others have published; a user's own is the user's."""
    default, given = (call("plan", "wmt_big", *CLUSTER, *mfu).out for mfu in ([], ["--mfu", "0.31"]))
    assert "time: an MFU of 0.2, a guess and yours to give (--mfu), of" in default
    assert "LightSeq2 35% on 8 A100, NVIDIA's DeepLearningExamples 33% on one, fairseq 23% on 8" in default
    assert "time: an MFU of 0.31, as given (--mfu), of" in given
    assert "a guess" not in given
    assert "LightSeq2" not in given
    found = plan(capsys, "wmt_big", *CLUSTER)
    assert (found["chosen"]["cluster"]["mfu"], found["chosen"]["cluster"]["is_mfu_given"]) == (0.2, False)
    assert "an MFU of 0.2, a guess" in " ".join(found["assumptions"])


@pytest.mark.parametrize(
    ("system", "rate", "pieces", "fraction"),
    [
        ("LightSeq2", 85_388, 39_000, 0.35),
        ("DeepLearningExamples", 82_059, 33_708, 0.33),
        ("fairseq", 55_700, 39_000, 0.23),
    ],
)
def test_the_published_mfu_is_of_the_published_rate(system: str, rate: int, pieces: int, fraction: float) -> None:
    """Target tokens a second of a GPU, by the plan's own FLOPs for sentences of 27 tokens."""
    config = load_run("wmt_big")
    shape = BatchShape(rows=1, source=27, target=27)
    flops = model_flops(config.model, config.loss, Vocabularies(source=pieces, target=pieces), shape) / 27
    assert rate * flops / (1e12 * GPUS["a100"].half_tflops) == pytest.approx(fraction, abs=0.01)
    assert f"{fraction:.0%}" in PUBLISHED_MFU[PUBLISHED_MFU.index(system) :].split(",")[0]


@pytest.mark.parametrize(("threshold", "of_gathering"), [(0, 2 * 253), (10**12, 0)])
def test_collectives_are_those_of_deepspeeds_own_keys(threshold: int, of_gathering: int) -> None:
    """What stays gathered is not gathered; the others are, forward and backward."""
    keys = f"{{stage3_param_persistence_threshold: {threshold}, reduce_bucket_size: 1000000}}"
    config = load_run("wmt_base", ["preset=vaswani_base", f"engine.zero_optimization={keys}"])
    model = MemoryModel(config, Vocabularies(source=37_000, target=37_000), precision="bf16")
    layout = model.layout(Setting(stage=3, offload=False, checkpointing=False), world_size=8)
    buckets = math.ceil(model.num_parameters / 1e6)
    assert num_collectives(layout, num_slots=4) == 4 * (of_gathering + buckets) + 1


def test_a_prepared_dataset_gives_vocabulary_and_lengths(
    corpus_en_fr: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((corpus_en_fr.folder / "index.json").read_text())
    found = plan(capsys, "debug", "--gpu-memory", "8GB", *corpus_en_fr.overrides)
    assert found["parameters"]["embedding"] == index["tokenizer"]["source_vocab_size"] * 32
    lengths = (index[f"{side}_tokens"] / index["pairs"] + 1 for side in ("source", "target"))
    said = "sentences of {:.3g} source and {:.3g} target tokens".format(*lengths)
    assert said in " ".join(found["assumptions"])


def test_what_is_to_be_changed(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_big", *CLUSTER)
    assert found["change"]["stream.micro_batches"] == 16
    settings = " ".join(f"{key}={value}" for key, value in found["change"].items())
    assert f"change      {settings}\n" in call("plan", "wmt_big", *CLUSTER).out
    again = plan(capsys, "wmt_big", *CLUSTER, *settings.split())
    assert again["chosen"]["micro_batches"]["is_same"]
    assert again["change"] == {}


BAD = [
    (["--nodes", "0"], "argument --nodes: '0'"),
    (["--gpus-per-node", "x"], "argument --gpus-per-node: 'x'"),
    (["--gpu-memory", "80XB"], "argument --gpu-memory: '80XB'"),
    (["--gpu-memory", "0"], "argument --gpu-memory: '0'"),
    (["--gpu", "abacus"], "argument --gpu: 'abacus'"),
    (["--mfu", "1.5"], "argument --mfu: '1.5'"),
    (["--mfu", "0"], "argument --mfu: '0'"),
    (["--mfu", "nan"], "argument --mfu: 'nan'"),
    (["--padding", "1"], "argument --padding: '1'"),
    (["--gpu-memory", "1.5GB"], "--gpu-memory: 1.5GB (0.405GB for tensors) is too small for a pair of 256 tokens at"),
    (["--nodes", "65536"], "--nodes: 65536 nodes with 8 GPUs each are 524288 GPUs"),
    (
        ["engine.zero_optimization={reduce_bucket_size: auto}"],
        "engine.zero_optimization.reduce_bucket_size: 'auto'",
    ),
    (["optimizer.lr=0"], "optimizer.lr: 0"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(arguments: list[str], expected: str, refused: Refused) -> None:
    said = refused("plan", "wmt_big", *CLUSTER, *arguments)
    assert said.startswith(expected)


def test_the_least_memory_that_is_named_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "wmt_big", *CLUSTER, "--gpu-memory", "1.5GB"]) == 2
    least = capsys.readouterr().err.split("use GPUs with at least ")[1].split(",")[0]
    assert main(["plan", "wmt_big", *CLUSTER, "--gpu-memory", least]) == 0
