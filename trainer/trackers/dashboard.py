"""The dashboard in TensorBoard: the layout of the charts, the run's configuration and its environment."""

import os
import platform
import socket
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from configs.components import Samples
from configs.components.training import describe_metrics
from trainer.records.names import TARGET_TOKENS, flatten
from trainer.runs.identity import versions

BY_TOKENS = "x_tokens/"
"""Prefix of a tag whose curve is plotted over target tokens instead of updates."""
_OF_DATA = {"empty_micro_batches", "epoch", "padding", "pairs", "source_tokens", "target_tokens", TARGET_TOKENS}
"""Figures of `train` that say what was read, not what was learned."""
_OF_EVERY_EVALUATION = {"valid/pairs", f"valid/{TARGET_TOKENS}"}
"""Not drawn: always the same, and as `train` has it."""
SECOND_AXIS = frozenset({"loss", "nll", "perplexity", "accuracy"})
"""Figures that, like the scores, are also plotted over target tokens."""
HPARAMS = (
    "optimizer.lr", "schedule.warmup_updates", "model.d_model", "model.encoder_layers", "stream.target_tokens",
    "stream.micro_batches", "model.dropout", "loss.label_smoothing", "training.max_updates", "seed",
    "model.decoder_layers", "model.feed_forward.d_ff", "model.attention.num_heads", "optimizer.weight_decay",
    "optimizer.clip_norm", "training.ema_decay", "engine.zero_stage", "engine.precision", "optimizer.kind",
    "schedule.kind", "loss.kind", "model.attention.kind", "model.feed_forward.kind", "model.norm.kind",
    "model.residual.kind", "model.positions.kind", "model.tied_embeddings",
)  # fmt: skip
"""The columns of the hyperparameter table, the same for every run: TensorBoard takes them from the first run it finds.
"""
VALIDATED_ON = "validation sets"
"""The last column: runs with other sets have other scores."""
SAMPLE = ("source", "reference", "translation")


def shown_as(tag: str) -> str | None:
    """A figure's tag in TensorBoard; None if it is not drawn.

    TensorBoard sorts groups by name and opens the first two. All but `train` and `valid` get an `x_`, so that what was
    learned comes first.

    Args:
        tag: as other trackers have it.
    """
    group, _, key = tag.partition("/")
    if tag in _OF_EVERY_EVALUATION:
        return None
    if group == "train" and key in _OF_DATA:
        return f"x_data/{key}"
    return tag if group in ("train", "valid") else f"x_{tag}"


def charts(
    metrics: Mapping[str, str],
    *,
    has_mixture: bool = False,
    has_sets: bool = False,
    has_peak: bool = True,
    is_resumed: bool = True,
) -> dict[str, dict[str, list[str]]]:
    """The layout of the custom scalars: by category and title, regular expressions that select the tags of a chart.

    Args:
        metrics: titles of the scores' charts, by the names of their figures.
        has_mixture: whether the run has several datasets.
        has_sets: whether it has several held-out sets.
        has_peak: whether the peak of the devices may be known.
        is_resumed: whether anything of `events` has happened at the start: a restart.
    """
    return {
        "1 learning": {
            "loss, training and validation": ["train/loss$", "valid/loss$"],
            "perplexity": ["train/perplexity$", "valid/perplexity$"],
            "loss over target tokens": [f"{BY_TOKENS}train/loss$", f"{BY_TOKENS}valid/loss$"],
            "learning rate": ["train/lr$"],
            "gradient norm": ["train/grad_norm$"],
            "update / weights, by part": ["train/update_ratio/.*"],
            **({"loss by dataset": ["train/loss/.*"]} if has_mixture else {}),
            **({"proportion of target tokens by dataset": ["train/token_share/.*"]} if has_mixture else {}),
            **({"skipped updates, rewinds, corrupt blocks, restarts": ["x_events/.*"]} if is_resumed else {}),
        },
        "2 quality": {
            **{title: [f"valid/{metric}$", f"valid/{metric}/.*"] for metric, title in metrics.items()},
            "token accuracy, validation": ["valid/accuracy$", "valid/accuracy/.*"],
            "length ratio, translations / references": ["valid/length_ratio.*"],
            **({"validation loss by set": ["valid/loss/.*"]} if has_sets else {}),
            **{f"{title} over target tokens": [f"{BY_TOKENS}valid/{name}$"] for name, title in metrics.items()},
        },
        "3 machine": {
            "target tokens per second": ["x_machine/tokens_per_second$"],
            "seconds per update": ["x_machine/seconds_per_update$", "x_machine/update_seconds_.*"],
            **({"MFU, fraction of peak FLOP/s": ["x_machine/mfu$"]} if has_peak else {}),
            "TFLOP/s per device": ["x_machine/tflops_per_second$"],
            "memory, GiB": ["x_machine/host_memory_.*", "x_machine/device_memory_.*"],
            "utilisation, percent": ["x_machine/cpu_utilization$", "x_machine/device_utilization$"],
            "waiting for data, fraction of time": ["x_machine/waiting_for_data$"],
            "checkpoints and evaluations, seconds": ["x_machine/checkpoint_.*", "x_machine/evaluation_seconds$"],
            "goodput": ["x_machine/goodput$"],
        },
    }


def hyperparameters(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """The fields of the configuration in `HPARAMS` that are set; a number before each name orders the columns."""
    leaves = {**flatten(config), VALIDATED_ON: validated_on(config)}
    numbered = {f"{number:02d} {key}": leaves.get(key) for number, key in enumerate((*HPARAMS, VALIDATED_ON))}
    filled = {name: value for name, value in numbered.items() if value is not None}
    return {key: value if isinstance(value, bool | int | float) else str(value) for key, value in filled.items()}


def validated_on(config: Mapping[str, Any]) -> str | None:
    """The names of the validation sets that the scores are of, or means over; None if the configuration has none."""
    sets = [one["name"] for one in config.get("evaluation", {}).get("sets", ()) if one.get("role") == "validation"]
    sources = [source["path"] for source in config.get("stream", {}).get("datasets") or ()]
    sources = sources or list(filter(None, [config.get("prepare", {}).get("output")]))
    return ", ".join(sets or [PurePath(path).name for path in sources]) or None


def layout(config: Mapping[str, Any], *, is_resumed: bool = True) -> dict[str, dict[str, list[str]]]:
    """The layout of a run's charts; see `charts`."""
    import torch

    sections = [config.get("stream", {}), *config.get("phases", ())]
    num_datasets = len({source["path"] for section in sections for source in section.get("datasets") or ()})
    num_sets = len(config.get("evaluation", {}).get("sets", ()))
    return charts(
        metric_titles(config),
        has_mixture=num_datasets > 1,
        has_sets=num_sets > 1,
        has_peak=torch.cuda.is_available() or config.get("training", {}).get("peak_tflops") is not None,
        is_resumed=is_resumed,
    )


def metric_titles(config: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the scores by the names of their figures, in the order of the configuration."""
    evaluation = config.get("evaluation", {})
    described = describe_metrics(evaluation.get("metrics", []), evaluation.get("queued"))
    return {name: one.label for name, one in described.items()}


def settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every field of the configuration and its value."""
    return [(key, str(value)) for key, value in flatten(config).items()]


def environment() -> list[tuple[str, str]]:
    """The machine and the package versions of the run's latest start."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    return [
        ("started", time.strftime("%Y-%m-%d %H:%M:%S %Z")),
        ("host", socket.gethostname()),
        ("ranks", os.environ.get("WORLD_SIZE", "1")),
        ("device of rank 0", device),
        ("cores", str(os.cpu_count())),
        ("system", platform.platform()),
        ("Python", platform.python_version()),
        *((name, version) for name, version in versions().items()),
    ]


def marked_samples(samples: Samples) -> list[tuple[Any, ...]]:
    """Rows of a table (source, reference, translation), with the differences from the reference in bold."""
    from trainer.records.marked_text import marked

    return [(source, *marked([reference, text])) for source, reference, text in samples]
