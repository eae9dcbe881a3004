"""A kind alone of a part of the model leaves the fields that the layers below it set."""

from pathlib import Path
from typing import Any

import yaml

from configs import load_run
from configs.components import make


def write(folder: Path, tree: dict[str, Any]) -> str:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    return str(path)


def test_fields_of_the_layers_below_stay(tmp_path: Path) -> None:
    path = write(tmp_path, {"preset": "modern"})
    for setting in ("model.norm=sample", "model.norm.kind=sample", "model.norm={kind: sample}", "model={norm: sample}"):
        assert load_run(path, [setting]).model.norm == make("norm", "sample", eps=1e-6)
    feed_forward = load_run(path, ["model.feed_forward=gelu"]).model.feed_forward
    assert feed_forward == make("feed_forward", "gelu", d_ff=1408, bias=False)
    path = write(tmp_path, {"preset": "modern", "model": {"norm": "sample"}})
    assert load_run(path).model.norm == make("norm", "sample", eps=1e-6)
