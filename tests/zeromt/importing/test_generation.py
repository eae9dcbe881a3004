"""How a checkpoint is searched with, and which languages it translates, come along; what cannot is said."""

import json
from pathlib import Path

import pytest

from configs import RunConfig, SearchSection, load_run
from configs.components import make
from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.made import make_run
from tests.zeromt.importing.made import edit, imported, save_marian, save_nllb
from zeromt.cli.main import main

PAD = 87
"""Of Marian's folder."""


def search_of(run: Path) -> SearchSection:
    config: RunConfig = load_run(str(run / "config.yaml"))
    return config.evaluation.search


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    save_marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    return tmp_path / "theirs"


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_the_search_comes_along(where: str, marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As today's checkpoints say it, and as old ones do."""
    edit(
        marian / where, num_beams=4, length_penalty=0.6, early_stopping=True, no_repeat_ngram_size=3, max_length=30,
        min_length=2, bad_words_ids=[[PAD]],
    )  # fmt: skip
    said = imported(marian, tmp_path / "run", capsys)
    found = search_of(tmp_path / "run")
    assert (found.beam, found.length_penalty, found.length_penalty_kind) == (4, 0.6, "mean")
    assert (found.patience, found.no_repeat_ngram) == (1.0, 3)
    assert (int(40 * found.max_length_ratio) + found.max_length_extra, found.min_length_extra) == (29, 2)
    assert "search, as its generation settings say: beam=4, " in said
    assert "not taken over" not in said


def test_generation_config_counts_more_than_config(
    marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(marian / "config.json", num_beams=6)
    edit(marian / "generation_config.json", num_beams=2, early_stopping="never")
    imported(marian, tmp_path / "run", capsys)
    assert (search_of(tmp_path / "run").beam, search_of(tmp_path / "run").patience) == (2, 0.0)


def test_sampling_comes_along(marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(marian / "generation_config.json", do_sample=True, temperature=0.7, top_p=0.9, max_new_tokens=12)
    imported(marian, tmp_path / "run", capsys)
    found = search_of(tmp_path / "run")
    assert found.sampler == make("sampler", "truncated", temperature=0.7, top_k=50, top_p=0.9)
    assert found.max_length_extra == 12


def test_nothing_said_is_this_projects_search(marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "search" not in imported(marian, tmp_path / "run", capsys)
    assert search_of(tmp_path / "run") == SearchSection()


def test_what_cannot_come_along_is_said(marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(
        marian / "generation_config.json", num_beams=3, repetition_penalty=1.2, renormalize_logits=True,
        length_penalty=-1.0, early_stopping=False, typical_p=1.0, min_length=500,
    )  # fmt: skip
    [note] = [line for line in imported(marian, tmp_path / "run", capsys).splitlines() if "not taken over" in line]
    for name in ("repetition_penalty=1.2", "renormalize_logits=True", "length_penalty=-1.0", "min_length=500"):
        assert name in note
    assert "early_stopping=False" in note
    assert "typical_p" not in note


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_the_forced_language_comes_along(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs"
    save_nllb(theirs)
    (theirs / "generation_config.json").unlink()
    edit(theirs / "tokenizer_config.json", src_lang="eng_Latn")
    added = json.loads((theirs / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    french = next(int(i) for i, token in added.items() if token["content"] == "fra_Latn")
    edit(theirs / where, forced_bos_token_id=french)
    assert "languages: eng_Latn to fra_Latn" in imported(theirs, tmp_path / "run", capsys)
    section = load_run(str(tmp_path / "run" / "config.yaml")).prepare
    assert (section.source_language, section.target_language, section.tag_both_sides) == ("eng_Latn", "fra_Latn", True)
    (tmp_path / "in").write_text("the cat\n")
    assert main(["translate", str(tmp_path / "run"), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    imported(theirs, tmp_path / "named", capsys, "--target-language", "eng_Latn")
    assert load_run(str(tmp_path / "named" / "config.yaml")).prepare.target_language == "eng_Latn"


def test_there_and_back(joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an export says of its search is what an import makes of it."""
    make_run(tmp_path / "run", joint)
    assert main(["export", str(tmp_path / "run"), "--format", "huggingface", "-o", str(tmp_path / "hugging")]) == 0
    edit(tmp_path / "hugging" / "generation_config.json", num_beams=5, early_stopping=True, length_penalty=0.8)
    assert "not taken over" not in imported(tmp_path / "hugging", tmp_path / "back", capsys)
    assert search_of(tmp_path / "back").beam == 5
