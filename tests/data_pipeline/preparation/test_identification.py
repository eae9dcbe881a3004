"""Language identifiers by choice."""

import dataclasses
import struct
from pathlib import Path

import pytest

from configs import CleaningSection, UserError
from configs.components import Corpus as Known
from data_pipeline.preparation import identification, prepare
from data_pipeline.preparation.identification import language_filter
from data_pipeline.preparation.recipe import stale_fields
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import contents
from tests.data_pipeline.preparation.made import Corpus

TEXTS = ENGLISH, FRENCH, NORWEGIAN = "the committee met again", "le comité se réunit encore", "komiteen møtes igjen"


def _model(labels: dict[str, str], *, is_supervised: bool = True) -> bytes:
    """A fastText model (version 12 of its files) in which each word of a text has a vector along its label's axis."""
    words = [(word, axis) for axis, text in enumerate(labels.values()) for word in text.split()]
    words.append(("</s>", -1))  # the end of a line, which says nothing
    dimension, loss, kind = len(labels), 3, 3 if is_supervised else 2
    head = struct.pack("<2i12id", 793712314, 12, dimension, 5, 1, 1, 0, 1, loss, kind, 0, 0, 0, 100, 1e-4)
    entries = [(word, 0) for word, _ in words] + [(f"__label__{label}", 1) for label in labels]
    counts = struct.pack("<3i2q", len(entries), len(words), len(labels), 100, -1)
    dictionary = b"".join(word.encode() + struct.pack("<bqb", 0, 1, kind) for word, kind in entries)
    axes = [axis for _, axis in words], range(dimension)
    matrices = [
        struct.pack("<?2q", False, len(rows), dimension)
        + b"".join(struct.pack(f"<{dimension}f", *(4.0 * (axis == at) for at in range(dimension))) for axis in rows)
        for rows in axes
    ]
    return head + counts + dictionary + b"".join(matrices)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("fasttext")
    path = tmp_path / "lid.bin"
    path.write_bytes(_model({"eng_Latn": ENGLISH, "fra_Latn": FRENCH, "nob_Latn": NORWEGIAN}))
    return path


@pytest.mark.parametrize("codes", [("en", "fr"), ("eng_Latn", "fra_Latn"), ("eng", "fr-CA")])
@pytest.mark.parametrize("labels", [("en", "fr", "no"), ("eng_Latn", "fra_Latn", "nob_Latn")])
def test_fasttext_by_any_codes(model: Path, codes: tuple[str, str], labels: tuple[str, str, str]) -> None:
    model.write_bytes(_model(dict(zip(labels, TEXTS, strict=True))))
    identification.load_identifier.cache_clear()
    one, other = codes
    find = language_filter("place", Known(source_language=one, target_language=other), 0.5, str(model))
    assert find([ENGLISH, FRENCH, ENGLISH, "42 %"], [FRENCH, FRENCH, NORWEGIAN, "xyz\n"]) == [1, 2]
    mixed = f"{ENGLISH} {' '.join(FRENCH.split()[:3])}"
    find = language_filter("place", Known(source_language=other, target_language=one), 0.9, str(model))
    assert find([ENGLISH, mixed], [ENGLISH, ENGLISH]) == [0], "a side that is another language, but not so surely"


def test_what_is_no_model_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no model")
    (tmp_path / "vectors").write_bytes(_model({"eng": ENGLISH}, is_supervised=False))
    for path, said in (
        ("none.bin", r"none.bin: is not a fastText model that labels lines: .*cannot be opened"),
        ("text", r"text: is not a fastText model that labels lines"),
        ("vectors", r"vectors: is not a fastText model that labels lines"),
    ):
        with pytest.raises(UserError, match=rf"^prepare.filters.0: .*{said}"):
            language_filter(
                "prepare.filters.0", Known(source_language="en", target_language="fr"), 0.5, str(tmp_path / path)
            )
    with pytest.raises(UserError, match=r"prepare.target_language: de: lid.bin does not know it"):
        language_filter("place", Known(source_language="en", target_language="de"), 0.5, str(model))


def test_a_model_is_known_by_its_content(model: Path, corpus: Corpus, tmp_path: Path) -> None:
    """Not by its folder; and a dataset is read where the model is gone."""
    pairs = [(ENGLISH, FRENCH), (FRENCH, FRENCH), (ENGLISH, "un deux")] * 20
    cleaning = CleaningSection(language_identification=True, language_model=str(model))
    section = corpus(pairs, cleaning=cleaning, target_language="fr")
    prepare.run(section)
    wanted = contents(tmp_path / "out")
    assert Dataset.load(tmp_path / "out").index.dropped["language"] == 20
    (tmp_path / "moved").mkdir()
    moved = model.rename(tmp_path / "moved" / model.name)
    cleaning = CleaningSection(language_identification=True, language_model=str(moved))
    section = dataclasses.replace(section, cleaning=cleaning)
    prepare.run(section)
    assert contents(tmp_path / "out") == wanted
    identification.load_identifier.cache_clear()
    moved.write_bytes(_model({"fra_Latn": ENGLISH, "eng_Latn": FRENCH}))
    with pytest.raises(UserError, match=r"out holds another dataset \(models: another content of lid.bin\)"):
        prepare.run(section)
    moved.unlink()
    assert stale_fields(section, Dataset.load(tmp_path / "out").index) == []
