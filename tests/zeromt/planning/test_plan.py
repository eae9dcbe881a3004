"""`zeromt plan` from end to end: figures, files, errors, imports."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from configs import load_run
from model.flops import BatchShape, model_flops
from model.gpus import GPUS
from model.parameters import Vocabularies
from tests.conftest import Corpus, Refused
from tests.launcher.conftest import CONFIGURATION, HEAVY, Zeromt, environment, imported
from zeromt.cli.main import main
from zeromt.planning import alone
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


@pytest.mark.parametrize("arguments", [[], ["--table", "--price", "2"], ["--table", "--json", "preset=nllb_3b"]])
def test_it_imports_the_libraries_of_configurations_alone(tmp_path: Path, arguments: list[str]) -> None:
    packages, done = imported(["plan", "wmt_big", *CLUSTER, *arguments], tmp_path, environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert packages & (HEAVY | CONFIGURATION) == CONFIGURATION


def test_the_report_names_everything(zeromt: Zeromt) -> None:
    done = zeromt("plan", "wmt_base", *CLUSTER, "--price", "2.5", "--kwh-price", "0.3", "--table")
    assert done.returncode == 0
    for word in ("decoder cross-attention", "ZeRO-3 + offload + checkpointing", "goodput", "GPU hours", "kWh", "4,096"):
        assert word in done.stdout
    assert "assumed" in done.stdout
    assert "vocabulary of 37000 pieces (prepare.tokenizer)" in done.stdout
    assert "(12 bytes per parameter)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 180
    averaged = zeromt("plan", "wmt_base", *CLUSTER, "training.ema_decay=0.999")
    assert "(16 bytes per parameter)" in averaged.stdout


def test_figures_hang_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--price", "2", "--kwh-price", "0.5", "--watts", "500", "--mfu", "0.5", "--peak-tflops", "100"]
    options += ["engine.zero_optimization={overlap_comm: false}"]
    found = plan(capsys, "wmt_base", *CLUSTER, *options, "--tokens", "10G")["chosen"]
    step, saving = found["step"], found["saving"]
    slots = found["micro_batches"]["slots"]
    assert step["compute"] == pytest.approx(slots * step["flops"] / 50e12)
    assert step["seconds"] == pytest.approx(step["compute"] + step["communication"] + step["latency"])
    assert found["updates"] == pytest.approx(10e9 / step["tokens"])
    hours = found["updates"] * step["seconds"] / saving["goodput"] / 3600
    assert found["days"] == pytest.approx(hours / 24)
    assert found["gpu_hours"] == pytest.approx(16 * hours)
    assert found["cost"] == pytest.approx(32 * hours)
    assert found["energy"] == pytest.approx(16 * hours * 0.5)
    assert found["energy_cost"] == pytest.approx(found["energy"] * 0.5)
    # weights of fp32 and two moments, over a ring of 16 ranks
    parameters = saving["bytes"] / 12
    assert step["sent"] == pytest.approx(2 * 4 * parameters * 15 / 16)
    assert saving["mtbf"] == pytest.approx(50_000 * 3600 / 16)


def test_what_is_beyond_all_numbers_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_base", *CLUSTER, "--mfu", "1e-300", "--price", "1e308", "--tokens", "900000T")
    assert (found["chosen"]["days"], found["chosen"]["cost"]) == (None, None)


def test_the_slowest_link_counts(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (
        plan(capsys, "wmt_base", *CLUSTER, "--inter-bandwidth", b)["chosen"]["step"] for b in ("10GB", "20GB")
    )
    assert slow["communication"] == pytest.approx(2 * fast["communication"])
    one_node = ["--nodes", "1", "--gpus-per-node", "8", "--gpu-memory", "80GB", "--intra-bandwidth", "100GB"]
    step = plan(capsys, "wmt_base", *one_node, "--inter-bandwidth", "1GB")["chosen"]["step"]
    assert step["communication"] == pytest.approx(step["sent"] / 100e9)


def test_mtbf_of_nodes_and_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    found = [plan(capsys, "wmt_base", *CLUSTER, "--mtbf", t) for t in ("800/gpu", "100/node")]
    assert [f["chosen"]["saving"]["mtbf"] for f in found] == pytest.approx([50 * 3600, 50 * 3600])


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


def test_advice_comes_first(zeromt: Zeromt, capsys: pytest.CaptureFixture[str]) -> None:
    first, change, *_ = zeromt("plan", "wmt_big", *CLUSTER).stdout.splitlines()
    found = plan(capsys, "wmt_big", *CLUSTER)
    chosen, cheapest, fastest = found["chosen"], found["advice"]["cheapest"], found["advice"]["fastest"]
    assert cheapest["gpu_hours"] <= chosen["gpu_hours"]
    assert fastest["days"] <= chosen["days"]
    assert first.startswith(f"advice: ZeRO-{chosen['memory']['setting']['stage']} on 16 GPUs, ")
    assert (
        f"fewest GPU hours: ZeRO-{cheapest['memory']['setting']['stage']} on {cheapest['cluster']['num_gpus']} "
        in first
    )
    assert "stream.micro_batches=16" in change.split()


def test_memory_is_known_by_the_gpus_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "wmt_base", "--nodes", "1", "--gpus-per-node", "8", "--gpu", "l4")["chosen"]["cluster"]
    assert found["gpu_memory"] == 24 * 10**9


def test_times_say_whose_mfu_they_rest_on(zeromt: Zeromt, capsys: pytest.CaptureFixture[str]) -> None:
    """A default that no GPU has shown is called so, with what others have published; a user's own is the user's."""
    default, given = (zeromt("plan", "wmt_big", *CLUSTER, *mfu).stdout for mfu in ([], ["--mfu", "0.31"]))
    assert "times: at an MFU of 0.2, a guess and yours to give (--mfu)\n" in default
    assert "LightSeq2 35% on 8 A100, NVIDIA's DeepLearningExamples 33% on one, fairseq 23% on 8" in default
    assert "times: at an MFU of 0.31, as given (--mfu)\n" in given
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


def test_the_table_has_a_plan_for_each_number_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    rows = plan(capsys, "wmt_big", *CLUSTER, "--table")["table"]
    assert [row["gpus"] for row in rows] == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    for row in rows:
        cut = row["plan"]["micro_batches"]
        assert row["plan"]["cluster"]["num_gpus"] == row["gpus"]
        assert cut["number"] >= row["gpus"]
        assert cut["is_same"] == (row["gpus"] <= 8)
    goodputs = [row["plan"]["saving"]["goodput"] for row in rows]
    assert goodputs == sorted(goodputs, reverse=True)


@pytest.mark.parametrize("memory", ["80GB", "5GB", "3.2GB"])
def test_what_is_written_is_what_was_chosen_and_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: str
) -> None:
    file = tmp_path / "planned.yaml"
    cluster = ["--nodes", "2", "--gpus-per-node", "8", "--gpu-memory", memory]
    found = plan(capsys, "wmt_big", *cluster, "--write", str(file), "optimizer.lr=3e-4")["chosen"]
    run, setting, cut = load_run(str(file)), found["memory"]["setting"], found["micro_batches"]
    assert run.engine.zero_stage == setting["stage"]
    assert run.engine.offload_optimizer == setting["offload"]
    assert run.model.activation_checkpointing == setting["checkpointing"]
    assert run.stream.micro_batches == cut["number"]
    assert run.stream.source_tokens == cut["source_tokens"]
    assert run.stream.target_tokens == cut["target_tokens"]
    assert run.checkpoint.every_updates == found["saving"]["updates"]
    assert run.optimizer.lr == 3e-4
    assert run.name == "wmt_big"
    again = plan(capsys, str(file), *cluster)["chosen"]
    assert again["memory"]["setting"] == setting
    assert again["micro_batches"]["is_same"]


def test_a_prepared_dataset_gives_vocabulary_lengths_and_epochs(
    corpus_en_fr: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((corpus_en_fr.folder / "index.json").read_text())
    cluster = ["--nodes", "1", "--gpus-per-node", "2", "--gpu-memory", "8GB"]
    found = plan(capsys, "debug", *cluster, *corpus_en_fr.overrides, "--epochs", "3")
    assert found["parameters"]["embedding"] == index["tokenizer"]["source_vocab_size"] * 32
    tokens = 3 * (index["target_tokens"] + index["pairs"])
    assert found["chosen"]["updates"] * found["chosen"]["step"]["tokens"] == pytest.approx(tokens)


BAD = [
    (["--nodes", "0"], "argument --nodes: '0'; allowed is a whole number from 1 to 65536"),
    (["--gpus-per-node", "x"], "argument --gpus-per-node: 'x'; allowed is a whole number from 1 to 1024"),
    (["--gpu-memory", "80XB"], "argument --gpu-memory: '80XB'; allowed is a positive number, alone or with one"),
    (["--gpu-memory", "0"], "argument --gpu-memory: '0'; allowed is a positive number"),
    (["--gpu", "abacus"], "argument --gpu: 'abacus'; allowed is one of a100, h100"),
    (["--mfu", "1.5"], "argument --mfu: '1.5'; allowed is a finite number above 0 up to 1"),
    (["--mfu", "0"], "argument --mfu: '0'; allowed is a finite number above 0 up to 1"),
    (["--mfu", "nan"], "argument --mfu: 'nan'; allowed is a finite number above 0 up to 1"),
    (["--mtbf", "5/rack"], "argument --mtbf: '5/rack'; allowed is a positive number of hours with /gpu, /node"),
    (["--padding", "1"], "argument --padding: '1'; allowed is a finite number from 0 to 0.99"),
    (["--price", "-1"], "argument --price: '-1'; allowed is a finite number above 0"),
    (["--tokens", "10Q"], "argument --tokens: '10Q'; allowed is a positive number, alone or with one of B, G, K, M, T"),
    (["--tokens", "1G", "--epochs", "2"], "argument --epochs: not allowed with argument --tokens"),
    (
        ["--write", "none/x.yaml"],
        "argument --write: 'none/x.yaml' cannot be written; give a file in a folder that exists",
    ),
    (["--epochs", "2"], "--epochs: 2, but the size of an epoch is not known, because a prepared"),
    (["--gpu-memory", "1.5GB"], "--gpu-memory: 1.5GB (0.405GB for tensors) is too small for a pair of 256 tokens at"),
    (["--nodes", "65536"], "--nodes: 65536 nodes with 8 GPUs each are 524288 GPUs; allowed are at most 65536 GPUs"),
    (
        ["engine.zero_optimization={reduce_bucket_size: auto}"],
        "engine.zero_optimization.reduce_bucket_size: 'auto'; allowed is a number of elements from 0",
    ),
    (["optimizer.lr=0"], "optimizer.lr: 0; allowed is greater than 0"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(arguments: list[str], expected: str, refused: Refused) -> None:
    said = refused("plan", "wmt_big", *CLUSTER, *arguments)
    assert said.startswith(expected)


def test_the_least_memory_that_is_named_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "wmt_big", *CLUSTER, "--gpu-memory", "1.5GB"]) == 2
    least = capsys.readouterr().err.split("use GPUs with at least ")[1].split(",")[0]
    assert main(["plan", "wmt_big", *CLUSTER, "--gpu-memory", least]) == 0


def alone_text(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main(["plan", *arguments]) == 0
    lines = capsys.readouterr().out.replace("\n    ", " ").splitlines()
    return {name: said for name, _, said in (line.partition(": ") for line in lines)}


def test_alone_it_answers_for_this_machine_and_one_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "this_machine", lambda: alone.Machine(gpus=0, cores=2, free=8 << 30))
    found = alone_text(capsys, "wmt_base")
    assert found["this machine"].startswith("no GPU; 2 ranks on 2 cores need about ")
    assert "of the 8.0 GiB that are free: enough" in found["this machine"]
    whole = plan(capsys, "wmt_base", "--nodes", "1", "--gpus-per-node", "1")["chosen"]
    assert found["one a100"].startswith("ZeRO-0, ")
    assert f"{whole['days'] * 24:.3g} h, {whole['memory']['peak'] / 2**30:.1f} of " in found["one a100"]
    assert any(name.startswith("one GPU is enough, quickest with engine.zero_stage=0") for name in found)
    # 8 lanes, and budgets that hold the longest pair up to 64 GPUs
    more = found["more GPUs"]
    assert more.startswith("up to 8 make the same updates (stream.micro_batches); for 16 give stream.micro_batches=16 ")
    assert (
        plan(capsys, "wmt_base", "--nodes", "8", "--gpus-per-node", "8")["chosen"]["micro_batches"]["is_larger"]
        is False
    )
    assert plan(capsys, "wmt_base", "--nodes", "16", "--gpus-per-node", "8")["chosen"]["micro_batches"]["is_larger"]
    assert found["another recipe"].startswith(
        "from 128 GPUs on an update has 32,768 target tokens, and 25,600 are conf"
    )
    assert "use at most 64, or lower prepare.max_pieces (255)" in found["another recipe"]
    assert found["all of it"].startswith("zeromt plan wmt_base --nodes 1 --gpus-per-node 8 --gpu a100")


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (alone.Machine(gpus=0, cores=2, free=1 << 30), "GiB that are free: too little: fewer ranks (--nproc) or "),
        (alone.Machine(gpus=2, card="NVIDIA H100 80GB HBM3", card_memory=79 << 30), "2 x NVIDIA H100 80GB HBM3: ZeRO-"),
        (alone.Machine(gpus=1, card="Abacus", card_memory=79 << 30), "time not known for this card (--gpu, --peak-tfl"),
        (
            alone.Machine(gpus=1, card="Small", card_memory=2 << 30),
            "too small for the model with one pair, at any ZeRO",
        ),
    ],
    ids=["little memory", "two known cards", "an unknown card", "a small card"],
)
def test_alone_on_other_machines(
    machine: alone.Machine, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "this_machine", lambda: machine)
    assert said in alone_text(capsys, "wmt_big")["this machine"]


def test_a_card_that_is_too_small_alone(capsys: pytest.CaptureFixture[str]) -> None:
    said = alone_text(capsys, "wmt_big", "--gpu", "l4", "--gpu-memory", "3GB")["one l4"]
    assert said.startswith("too small for the model with one pair; 16 of them: ZeRO-")


def test_alone_it_imports_no_more(tmp_path: Path) -> None:
    packages, done = imported(["plan", "debug"], tmp_path, environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert packages & (HEAVY | CONFIGURATION) == CONFIGURATION
