"""What a run translates and scores in."""

from pathlib import Path

import pytest
import torch

from configs import SearchSection
from tests.zeromt.made import ENGLISH, FRENCH, make_run, make_tokenizer
from trainer.inference.translation.translator import Translator
from trainer.ranks import precision
from trainer.ranks.precision import translating_precision
from zeromt.cli.main import main

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("asked", "trained_with", "device", "expected"),
    [
        (None, "bf16", CPU, "fp32"),
        (None, "fp16", CPU, "fp32"),
        (None, "auto", CPU, "fp32"),
        (None, "bf16", GPU, "bf16"),
        (None, "fp16", GPU, "fp16"),
        (None, "fp32", GPU, "fp32"),
        (None, "auto", GPU, "bf16"),
        ("auto", "fp32", CPU, "bf16"),
        ("bf16", "fp32", CPU, "bf16"),
        ("fp32", "bf16", GPU, "fp32"),
    ],
)
def test_what_is_taken(
    asked: str | None, trained_with: str, device: torch.device, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On devices that are faster in bf16."""
    monkeypatch.setattr(precision, "bf16_is_faster", lambda _: True)
    assert translating_precision(asked, trained_with, device) == expected


@pytest.mark.parametrize("trained_with", ["bf16", "fp16"])
def test_a_run_of_half_precision_on_a_cpu(
    trained_with: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its weights are kept in fp32: scores are those of the exact model, unless bf16 is asked for."""
    tokenizer = make_tokenizer()
    model = make_run(tmp_path / "run", tokenizer, precision=trained_with)
    translator = Translator(model, tokenizer, SearchSection(), CPU)
    exact = [t.log_prob for t in translator.score_part(ENGLISH[:20], FRENCH[:20], rank=0, world_size=1) if t]
    (tmp_path / "in").write_text("".join(f"{s}\t{t}\n" for s, t in zip(ENGLISH[:20], FRENCH[:20], strict=True)))
    scores = {}
    for name, options in (("default", []), ("bf16", ["--precision", "bf16"])):
        assert main(["translate", str(tmp_path / "run"), "--score", "-i", str(tmp_path / "in"), *options]) == 0
        scores[name] = [float(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    assert scores["default"] == pytest.approx(exact, abs=1e-3)
    assert scores["bf16"] != pytest.approx(exact, abs=1e-2), "half precision would do no harm"
