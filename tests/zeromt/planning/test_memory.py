"""The memory of a run for every setting; what the plan copies from modules that need torch."""

import dataclasses

import pytest
import torch

from benchmarks.common.child import call
from benchmarks.device.memory import peak
from configs import EngineSection, load_run
from model.parameters import Vocabularies
from trainer.engines.deepspeed import config as zero_config
from trainer.engines.deepspeed import reduction
from trainer.ranks.precision import Precision
from zeromt.planning.costs import model_states
from zeromt.planning.costs.communication import communication_volume
from zeromt.planning.costs.memory import MemoryModel, Setting, Stage, settings

VOCABULARIES = Vocabularies(source=32_000, target=32_000)
ALL = list(settings(EngineSection(), checkpointing=False))


def model(run: str = "wmt_base", *overrides: str) -> MemoryModel:
    return MemoryModel(load_run(run, overrides), VOCABULARIES, precision="bf16")


def test_buckets_are_those_of_the_engine() -> None:
    assert model_states.BUCKET_ELEMENTS == zero_config.BUCKET_ELEMENTS
    assert model_states.EARLY_BUCKET_ELEMENTS == zero_config.EARLY_BUCKET_ELEMENTS
    assert model_states.ON_THE_WAY == reduction.ON_THE_WAY


@pytest.mark.parametrize("stage", [1, 2])
def test_half_is_sent_where_gradients_are_reduced_in_the_backward_pass(stage: Stage) -> None:
    setting = Setting(stage=stage, offload=False, checkpointing=False)
    on, off = (
        communication_volume(model("wmt_base", *keys), setting, world_size=8, num_slots=3)
        for keys in ((), ("engine.zero_optimization={reduce_scatter: true}",))
    )
    assert (on.all_reduced, off.scattered) == (0, 0)
    assert on.scattered == off.all_reduced > 0
    assert on.gathered == off.gathered
    assert off.sent(8) - on.sent(8) == pytest.approx(on.scattered * 7 / 8)


def test_settings_come_in_order_and_are_allowed() -> None:
    assert [str(s) for s in ALL[:5]] == ["ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-0 + checkpointing"]
    assert len(ALL) == 14
    for setting in ALL:
        section = dataclasses.replace(EngineSection(), zero_stage=setting.stage, offload_optimizer=setting.offload)
        assert not list(section.problems())
    assert all(s.checkpointing for s in settings(EngineSection(), checkpointing=True))
    assert all(s.offload for s in settings(EngineSection(offload_optimizer=True), checkpointing=False))


@pytest.mark.parametrize("setting", ALL, ids=str)
@pytest.mark.parametrize("world_size", [1, 1000])
def test_the_largest_micro_batch_fits_and_the_next_does_not(setting: Setting, world_size: int) -> None:
    planned, budget = model(), 24 * 10**9
    most = planned.largest_micro_batch(setting, world_size=world_size, budget=budget)
    peaks = [
        planned.memory(
            setting, world_size=world_size, source_tokens=planned.source_for(tokens), target_tokens=tokens
        ).peak
        for tokens in (most, most + 1)
    ]
    assert peaks[0] <= budget < peaks[1]
    assert planned.largest_micro_batch(setting, world_size=world_size, budget=1000) == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_rank_reduces_nothing_at_stage_0(precision: Precision) -> None:
    """In bf16 stage 1 runs: ranks reduce sums in place, to which each micro-batch's gradients are added in pieces."""
    planned = MemoryModel(load_run("wmt_base"), VOCABULARIES, precision=precision)
    num_parameters = sum(p.size for p in planned.parameters)
    one, two = (planned.states(Setting(stage=0, offload=False, checkpointing=False), n) for n in (1, 2))
    added = 2 * (num_parameters + 25_000_000)
    assert (one.buckets, two.buckets) == ((0, 4 * num_parameters) if precision == "fp32" else (added, added))
    assert one.buckets_in_backward == two.buckets_in_backward == 0
    assert one.step == two.step == 0, "gradients are stepped on as they are"


def flash_workspace(*overrides: str, precision: str = "bf16", rows: tuple[int, int] = (128, 1024)) -> int:
    """By how much the peak of `wmt_big` grows from the fewer of these rows to the more, of 16,384 tokens alike."""
    settings = ["stream.length_multiple=8", "evaluation.every_updates=0", *overrides]
    peaks = []
    for most in rows:
        config = load_run("wmt_big", [*settings, f"stream.max_rows={most}"])
        planned = MemoryModel(config, Vocabularies(source=8000, target=8000), precision=precision)
        setting = Setting(stage=2, offload=False, checkpointing=False)
        found = planned.memory(setting, world_size=8, source_tokens=16_384, target_tokens=16_384)
        assert found.moment == "backward"
        peaks.append(found.peak)
    return peaks[1] - peaks[0]


def test_short_rows_need_the_workspace_of_flash_attention() -> None:
    """It sums the query's gradient in fp32, with 128 positions more for each row; 8 tokens are the shortest row."""
    assert flash_workspace(rows=(512, 1024)) == 4 * 128 * 512 * 1024
    assert flash_workspace(rows=(512, 4096)) == 4 * 128 * (16_384 // 8 - 512) * 1024
    wide = flash_workspace("model.attention.head_width=40", rows=(512, 1024))
    assert wide == 4 * 128 * 512 * 16 * 64, "heads are padded to a multiple of 32"


@pytest.mark.parametrize(
    ("overrides", "precision"),
    [
        (["model.attention.dropout=0.1"], "bf16"),
        (["engine.attention=short"], "bf16"),
        (["engine.attention=padded"], "bf16"),
        ([], "fp32"),
    ],
)
def test_where_other_attention_runs_there_is_none(overrides: list[str], precision: str) -> None:
    assert flash_workspace(*overrides, precision=precision) == 0


def test_a_copy_for_evaluation_stays_and_the_model_begins_in_fp32() -> None:
    setting, sizes = Setting(stage=3, offload=False, checkpointing=False), {"source_tokens": 500, "target_tokens": 500}
    small, large = (
        model("wmt_base", f"evaluation.every_updates={n}").memory(setting, world_size=64, **sizes) for n in (0, 1)
    )
    copy = 2 * sum(p.size for p in model().parameters)
    assert (small.copy, large.copy) == (0, copy)
    assert large.moments["backward"] - small.moments["backward"] == copy
    assert large.moments["evaluation"] == small.moments["evaluation"] > copy
    assert large.moments["start"] >= 2 * copy


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("preset", ["vaswani_base", "vaswani_big", "nllb_600m"])
def test_peak_of_a_gpu(preset: str, stage: int) -> None:
    """torch's own peak over two updates of two micro-batches on one GPU in bf16."""
    tokens, length = 8192, 64
    found = call(peak, preset=preset, stage=stage, tokens=tokens, length=length, vocabulary=VOCABULARIES.target)
    planned = model("wmt_base", f"preset={preset}", "prepare.max_pieces=255", "evaluation.every_updates=0")
    setting = Setting(stage=stage, offload=False, checkpointing=False)  # type: ignore[arg-type]
    memory = planned.memory(
        setting, world_size=1, source_tokens=tokens, target_tokens=tokens, num_rows=tokens // length
    )
    most = max(memory.moments[moment] for moment in ("backward", "reduction", "step"))
    assert most == pytest.approx(found["peak"], rel=0.1), memory
