"""A graph of eleven steps, from raw text to the scores of a student, with tiny models: all of it takes a minute."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_MODEL: dict[str, Any] = {
    "stream": {"micro_batches": 2, "source_tokens": 512, "target_tokens": 512},
    "model": {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_positions": 64,
        "attention": {"num_heads": 2},
        "feed_forward": {"d_ff": 32},
    },
    "optimizer": {"lr": 3.0e-3},
    "schedule": {"warmup_updates": 5},
    "engine": {"zero_stage": 1, "precision": "fp32", "device": "cpu"},
    "evaluation": {"every_updates": 0},
    "checkpoint": {"every_updates": 5},
}


def trained(dataset: str, updates: int = 10, **settings: Any) -> dict[str, Any]:
    """The settings of a run."""
    training = {"max_updates": updates, "log_every": 5}
    return {**_MODEL, "prepare": {"output": dataset, "max_pieces": 32}, "training": training, **settings}


def prepared(train: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """The settings of a preparation."""
    section = {"output": "{output}", "source_language": "en", "target_language": "fr", "train": train, "max_pieces": 32}
    return {"prepare": {**section, "pairs_per_block": 32, "blocks_per_shard": 2, **settings}}


def steps() -> dict[str, Any]:
    """The steps."""
    own = {"tokenizer": {"path": "{dataset}"}}
    mixed = {**_MODEL["stream"], "datasets": [{"path": "{dataset}"}, {"path": "{synthetic}"}]}
    return {
        "dataset": {
            "run": "zeromt prepare {config}",
            "config": prepared(
                {"source": ["{english}"], "target": ["{french}"]},
                tokenizer={"vocab_size": 120},
                filters=[{"kind": "max_characters", "limit": 200}],
            ),
        },
        "reversed": {
            "run": "zeromt prepare {config}",
            "config": prepared(
                {"source": ["{french}"], "target": ["{english}"]}, source_language="fr", target_language="en", **own
            ),
        },
        "backward": {"run": "zeromt train {config}", "config": trained("{reversed}")},
        "translated": {
            "run": "zeromt translate {backward} -i {monolingual} -o {output} --chunk-lines 32",
            "parts": 2,
        },
        "synthetic": {
            "run": "zeromt prepare {config}",
            "config": prepared(
                {"source": ["{translated}/translations.txt"], "target": ["{translated}/translations.source.txt"]}, **own
            ),
        },
        "teacher": {
            "run": "zeromt train {config}",
            "config": trained("{dataset}", stream=mixed),
        },
        "distilled": {"run": "zeromt translate {teacher} -i {english} -o {output} --chunk-lines 32", "parts": 2},
        "corpus": {
            "run": "zeromt prepare {config}",
            "config": prepared(
                {"source": ["{distilled}/translations.source.txt"], "target": ["{distilled}/translations.txt"]}, **own
            ),
        },
        "student": {"run": "zeromt train {config}", "config": trained("{corpus}")},
        "exported": {"run": "zeromt export {student} --format ctranslate2 -o {output}"},
        "scores": {
            "run": "zeromt evaluate {student} --source {test_en} --reference {test_fr}",
            "stdout": "{output}",
        },
    }


def write(folder: Path, **changes: Any) -> None:
    """Write the raw texts and the pipeline, `toy.yaml`, into a folder.

    Args:
        folder: its own.
        changes: keys of the pipeline that are added or replaced.
    """
    words = random.Random(1)
    rows = [[words.choice("abcdefghij") * words.randint(1, 4) for _ in range(words.randint(2, 9))] for _ in range(400)]
    texts = {
        "english": [" ".join(row) for row in rows[:240]],
        "french": [" ".join(reversed(row)).upper() for row in rows[:240]],
        "monolingual": [" ".join(row).upper() for row in rows[240:360]],
        "test_en": [" ".join(row) for row in rows[360:]],
        "test_fr": [" ".join(reversed(row)).upper() for row in rows[360:]],
    }
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    inputs = {name: f"{name}.txt" for name in texts}
    tree = {"output": "out", "inputs": inputs, "steps": steps(), **changes}
    (folder / "toy.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
