"""How a checkpoint is searched with, and which languages it translates, come along; what cannot is said."""

import json
from pathlib import Path

import pytest

from configs import RunConfig, SearchSection, load_run
from tests.zeromt.their_models import edit, imported, save_marian, save_nllb
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
    """As today's checkpoints say it, and as old ones do; what cannot come along is said."""
    edit(
        marian / where, num_beams=4, length_penalty=0.6, early_stopping="never", no_repeat_ngram_size=3, max_length=30,
        bad_words_ids=[[PAD]], repetition_penalty=1.2, typical_p=1.0,
    )  # fmt: skip
    said = imported(marian, tmp_path / "run", capsys)
    search = search_of(tmp_path / "run")
    assert (search.beam, search.length_penalty, search.length_penalty_kind) == (4, 0.6, "mean")
    assert (search.patience, search.no_repeat_ngram) == (0.0, 3)
    assert "search, as its generation settings say: beam=4, " in said
    assert "search, not taken over: max_length=30, repetition_penalty=1.2\n" in said


def test_nothing_said_is_this_projects_search(marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "search" not in imported(marian, tmp_path / "run", capsys)
    assert search_of(tmp_path / "run") == SearchSection()


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
