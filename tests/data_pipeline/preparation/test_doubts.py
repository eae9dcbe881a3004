"""Warnings of what is probably not meant: languages that are none, and exchanged sides."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation import prepare
from data_pipeline.preparation.doubts import of_languages
from tests.data_pipeline.conftest import BUNDLED

EXCHANGED = "prepare.valid: its source is nearer to the training target and its target to the training source; are the"


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("en", "czech", "prepare.target_language: czech: is no code of a language; give one such as en, eng or eng_"),
        ("zz", "fr", "prepare.source_language: zz: is no code of a language; give one such as en, eng or eng_Latn"),
        ("en", "en", "prepare.target_language: en: is the language of the source too (en)"),
        ("en", "eng", "prepare.target_language: eng: is the language of the source too (en)"),
        ("en", "fr", None),
        ("eng_Latn", "zho_Hans", None),
        ("zh_Hans", "zh_Hant", None),
        ("pt_BR", "pt_PT", None),
        ("nb", "nn", None),
    ],
)
def test_languages(source: str, target: str, said: str | None) -> None:
    found = list(of_languages(PrepareSection(source_language=source, target_language=target)))
    assert [line[: len(said)] for line in found] == [said] if said else not found


@pytest.mark.parametrize("vocabulary", ["joint", "separate"])
@pytest.mark.parametrize("sides", [("en", "fr"), ("fr", "en")])
def test_exchanged_sides_of_a_held_out_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vocabulary: Any, sides: tuple[str, str]
) -> None:
    source, target = ([f"test.{side}.gz"] for side in sides)
    section = PrepareSection(
        output=str(tmp_path / "out"),
        root=str(BUNDLED),
        target_language="fr",
        train=CorpusFiles(source=["valid.en.gz"], target=["valid.fr.gz"]),
        valid=CorpusFiles(source=source, target=target),
        test=CorpusFiles(source=["test.en.gz"], target=["test.fr.gz"]),
        tokenizer=TokenizerSection(vocab_size=500, threads=1, vocabulary=vocabulary),
        workers=1,
    )
    prepare.run(section)
    said = capsys.readouterr().err
    assert (EXCHANGED in said) == (sides == ("fr", "en"))
    assert "prepare.test" not in said


def test_small_sets_and_one_language_say_nothing_of_sides(
    corpus: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"the cat number {n} sat" for n in range(100)]
    (tmp_path / "few.en").write_text("le chat\n" * 5)
    (tmp_path / "few.fr").write_text("the cat\n" * 5)
    for name, part in (("same.a", lines[::2]), ("same.b", lines[1::2])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in part))
    for valid in (["few.en"], ["few.fr"]), (["same.a"], ["same.b"]):
        files = CorpusFiles(source=valid[0], target=valid[1])
        section = corpus([(s, s) for s in lines], valid=files, output=str(tmp_path / valid[0][0][:4]))
        prepare.run(dataclasses.replace(section, target_language="eng"))
        said = capsys.readouterr().err
        assert "exchanged" not in said
        assert "zeromt: warning: prepare.target_language: eng: is the language of the source too (en)\n" in said
