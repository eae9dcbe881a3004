"""What docs/export.md shows of exports, executed as it stands: translations are the run's own, tags and limits too."""

from pathlib import Path

import pytest
import torch

from configs import SearchSection
from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.made import ENGLISH, TAG, ctranslate2_snippet, make_run, make_tokenizer, snippet
from trainer.inference.translation.translator import Translator
from zeromt.cli.main import main
from zeromt.formats.check import load_exact

SHORT = SearchSection(max_length_ratio=1.0, max_length_extra=3)
BEAM = SearchSection(beam=3, length_penalty=0.7, length_penalty_kind="mean", max_length_ratio=1.0, max_length_extra=3)
LINES = [*ENGLISH[:4], f"{TAG} {ENGLISH[1]}", f"{TAG} dogs", " ".join(ENGLISH[:9])]
"""The last one is longer than the model's positions."""


def ours(run: Path, lines: list[str], search: SearchSection) -> list[str]:
    loaded = load_exact(run)
    translator = Translator(loaded.model, loaded.tokenizer, search, torch.device("cpu"))
    return [hypotheses[0].text for hypotheses in translator.translate(lines)]


@pytest.mark.parametrize("search", [SHORT, BEAM])
def test_ctranslate2(
    search: SearchSection, joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random models hardly ever end by themselves, so the limit decides on most of the text."""
    make_run(tmp_path / "run", joint, search=search)
    assert main(["export", str(tmp_path / "run"), "--format", "ctranslate2", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert f"tags: {TAG} and a space before a text are one piece" in said
    assert "of a source of n pieces, at most min(32, int(1 n) + 3), EOS counted" in said
    translate = ctranslate2_snippet(tmp_path / "out")
    assert [translate(line) for line in LINES] == ours(tmp_path / "run", LINES, search)
    assert ours(tmp_path / "run", LINES, search) != ours(tmp_path / "run", LINES, SearchSection())


@pytest.mark.parametrize("search", [SHORT, BEAM])
def test_transformers(
    search: SearchSection, joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    make_run(tmp_path / "run", joint, search=search)
    assert main(["export", str(tmp_path / "run"), "--format", "huggingface", "-o", str(tmp_path / "out")]) == 0
    assert f"tags: {TAG} and a space before a text are one piece" in capsys.readouterr().out
    names = {name: getattr(transformers, name) for name in ("AutoTokenizer", "AutoModelForSeq2SeqLM")}
    translate = snippet("AutoModelForSeq2SeqLM", tmp_path / "out", **names)
    translations = [translate(line) for line in LINES[:-1]]
    assert translations == [line.replace(" \u2047 ", "").strip() for line in ours(tmp_path / "run", LINES[:-1], search)]


def test_a_tag_that_the_exported_model_does_not_cut_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case is folded before tags are looked for."""
    pytest.importorskip("ctranslate2")
    tokenizer = make_tokenizer(vocab_size=42, tags=[TAG, ">>zho_Hans<<"], normalization="nmt_nfkc_cf")
    make_run(tmp_path / "run", tokenizer)
    assert main(["export", str(tmp_path / "run"), "--format", "ctranslate2", "-o", str(tmp_path / "out")]) == 0
    assert "does not cut >>zho_Hans<<; put the piece \u2581>>zho_Hans<< before" in capsys.readouterr().out
    assert (
        ctranslate2_snippet(tmp_path / "out")(f"{TAG} the cat")
        == ours(tmp_path / "run", [f"{TAG} the cat"], SearchSection())[0]
    )
