"""FLOPs a second of a run, and the fraction of a peak."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from configs import load_run
from data_pipeline.stream.batch import MicroBatch, Ragged, collate
from model import SpecialIds, build_transformer
from model.flops import BatchShape, Vocabularies, executed_flops
from model.gpus import GPUS, known_gpu
from trainer.engines import Engine
from trainer.records import interval
from trainer.records.interval import Work

VOCABULARY = 64
SETTINGS = ["model.activation_checkpointing=true", "loss.label_smoothing=0.1"]


def work_of(*settings: str) -> Work:
    config = load_run("debug", [*SETTINGS, *settings])
    sizes: Any = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    model = build_transformer(config.model, **sizes, special=SpecialIds(pad=0, bos=1, eos=2), seed=1)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    engine = SimpleNamespace(parameter_shapes=lambda: shapes, device=torch.device("cpu"), precision="bf16")
    return Work(config, cast(Engine, engine))


def micro_batch(sources: list[int], targets: list[int]) -> MicroBatch:
    one, other = (Ragged.of([np.full(n, 5, dtype=np.uint32) for n in lengths]) for lengths in (sources, targets))
    return collate(0, np.arange(len(sources)), one, other, 8)


def test_only_tokens_count_once_and_a_missing_matrix_is_shared() -> None:
    """That `executed_flops` is what torch counts, `tests/zeromt/planning/test_counts.py` holds."""
    shapes = [BatchShape(rows=2, source=4, target=21), BatchShape(rows=1, source=10, target=2)]  # with EOS
    for tied in ("none", "three-way"):
        settings = f"model.tied_embeddings={tied}"
        config = load_run("debug", [*SETTINGS, settings, "model.activation_checkpointing=false"])
        sizes = Vocabularies(source=VOCABULARY, target=VOCABULARY)
        expected = sum(sum(executed_flops(config.model, config.loss, sizes, shape).values()) for shape in shapes)
        flops = work_of(settings).flops(micro_batch([3, 9, 3], [20, 1, 20]))
        assert flops == expected, "what activation checkpointing computes twice counts once"


def test_there_is_no_fraction_without_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_of().figures(8e12, 2.0, 4) == {"tflops_per_second": 1.0}
    assert work_of("training.peak_tflops=4").figures(8e12, 2.0, 4) == {"tflops_per_second": 1.0, "mfu": 0.25}
    monkeypatch.setattr(interval, "device_name", lambda _: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(interval, "kind", lambda _: "cuda")
    assert work_of().figures(989e12, 1.0, 2) == {"tflops_per_second": 494.5, "mfu": 0.5}
    assert work_of().figures(0.0, 1.0, 2) == {}, "a part of the model that does not say"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA H100 PCIe MIG 1g.10gb", None),
        ("NVIDIA L40", None),
        ("", None),
    ],
)
def test_peaks_are_those_of_the_named_module_alone(name: str, known: str | None) -> None:
    assert known_gpu(name) is (None if known is None else GPUS[known])
