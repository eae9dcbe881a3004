"""A kind alone of a part of the model leaves the fields that the layers below it set."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import ConfigError, load_run
from configs.components import make


def write(folder: Path, tree: dict[str, Any]) -> str:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    return str(path)


def test_fields_of_the_layers_below_stay(tmp_path: Path) -> None:
    path = write(tmp_path, {"preset": "modern"})
    for setting in ("model.norm=sample", "model.norm.kind=sample", "model.norm={kind: sample}", "model={norm: sample}"):
        assert load_run(path, [setting]).model.norm == make("norm", "sample", eps=1e-6)
    found = load_run(path, ["model.feed_forward=gelu"]).model.feed_forward
    assert found == make("feed_forward", "gelu", d_ff=1408, bias=False)
    path = write(tmp_path, {"preset": "modern", "model": {"norm": "sample"}})
    assert load_run(path).model.norm == make("norm", "sample", eps=1e-6)


def test_another_kind_leaves_what_was_meant_for_the_one_below(tmp_path: Path) -> None:
    """Not an error, as nobody wrote it for this kind; what is written beside the kind is."""
    path = write(tmp_path, {"schedule": {"kind": "cosine", "min_lr_ratio": 0.1, "warmup_updates": 7}})
    constant, linear = (load_run(path, [f"schedule.kind={kind}"]).schedule for kind in ("constant", "linear"))
    assert constant == make("schedule", "constant", warmup_updates=7)
    assert linear == make("schedule", "linear", warmup_updates=7, min_lr_ratio=0.1)
    with pytest.raises(ConfigError, match=r"^schedule\.ratio: unknown key"):
        load_run(path, ["schedule={kind: constant, ratio: 1}"])
    path = write(tmp_path, {"preset": "nllb_600m"})
    assert load_run(path, ["model.positions=rotary"]).model.positions == make("positions", "rotary")
    with pytest.raises(ConfigError, match=r"^model\.positions\.layout: unknown key"):
        load_run(path, ["model.positions=rotary", "model.positions.layout=halves"])
