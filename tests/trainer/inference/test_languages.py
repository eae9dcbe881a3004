"""Models with language tags on both sides force them, as Transformers' generate and CTranslate2 do once exported."""

import json
from pathlib import Path

import pytest
import torch
from sentencepiece import SentencePieceProcessor

from configs import SearchSection
from data_pipeline.tokenizer import JOINT_FILE
from tests.zeromt.made import ENGLISH, ctranslate2_snippet, make_tokenizer
from tests.zeromt.their_models import SIZES, shaken
from trainer.inference.loading import TrainedModel, load_trained
from trainer.inference.translation.languages import language_tags
from trainer.inference.translation.translator import Translator
from zeromt.cli.main import main
from zeromt.formats.check import load_exact

LENGTH = 12
"""Pieces written, the language's tag among them."""


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `theirs`, as Transformers' own M2M100 classes save it, and `ours`, imported without languages."""
    transformers = pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("m2m100")
    (root / "model").write_bytes(proto := make_tokenizer().files()[JOINT_FILE])
    model = SentencePieceProcessor(model_proto=proto)
    pieces = [model.id_to_piece(i) for i in range(5, model.get_piece_size())]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    (root / "vocab").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    tokenizer = transformers.M2M100Tokenizer(str(root / "vocab"), str(root / "model"))
    tokenizer.save_pretrained(root / "theirs")
    config = transformers.M2M100Config(
        **SIZES, vocab_size=len(vocabulary) + 108, scale_embedding=True, decoder_start_token_id=2,
        activation_function="relu",
    )  # fmt: skip
    theirs = shaken(transformers, "M2M100ForConditionalGeneration", config)
    with torch.no_grad():  # text is what it writes, not languages, and not the end at once
        theirs.get_input_embeddings().weight[[2, *range(len(vocabulary), len(vocabulary) + 108)]] *= 0.3
    theirs.save_pretrained(root / "theirs")
    assert main(["import", "--huggingface", str(root / "theirs"), "-o", str(root / "ours")]) == 0
    return root


def translator(trained: TrainedModel, source: str, target: str) -> Translator:
    section = SearchSection(max_length_ratio=0.001, max_length_extra=LENGTH + 1, no_repeat_ngram=2)  # with EOS
    tags = language_tags(trained.config.prepare, trained.tokenizer, source=source, target=target)
    return Translator(trained.model, trained.tokenizer, section, trained.device, tags=tags)


def test_the_command_takes_languages(m2m100: Path, tmp_path: Path) -> None:
    """Each source gets its tag, but for an empty one and one that has another."""
    lines = [*ENGLISH[:4], "", f">>de<< {ENGLISH[0]}"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    files = ["-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    limits = ["--max-length-ratio", "0.001", "--max-length-extra", str(LENGTH + 1), "--no-repeat-ngram", "2"]
    languages = ["--source-language", "eng_Latn", "--target-language", "fra"]  # or en and fr
    assert main(["translate", str(m2m100 / "ours"), *files, *languages, *limits, "--beam", "1"]) == 0
    texts = (tmp_path / "out").read_text().split("\n")[:-1]
    trained = load_trained(m2m100 / "ours")
    [of_german] = translator(trained, "de", "fr").translate([ENGLISH[0]])
    expected = [*translator(trained, "en", "fr").translate(lines[:5]), of_german]
    assert texts == [t[0].text for t in expected]
    assert texts[4] == ""
    assert translator(trained, "en", "fr").translate(lines[5:]) == [of_german]
    assert of_german[0].log_prob != expected[0][0].log_prob


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--source-language: none is given, and the run names none; allowed is one of "),
        (["--source-language", "en"], "--target-language: none is given, and the run names none; allowed is one of "),
        (["--source-language", "en", "--target-language", "xx"], "--target-language: 'xx'; allowed is one of "),
    ],
)
def test_a_language_that_is_missing_or_unknown(
    options: list[str], said: str, m2m100: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("x\n")
    assert main(["translate", str(m2m100 / "ours"), "-i", str(tmp_path / "in"), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"zeromt: error: {said}")
    assert " fr," in error
    assert len(error.splitlines()) == 1


def test_exported_it_is_forced_too(m2m100: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    languages = ["--source-language", "en", "--target-language", "fr"]
    run = str(tmp_path / "run")
    assert main(["import", "--huggingface", str(m2m100 / "theirs"), "-o", run, *languages]) == 0
    for format_ in ("huggingface", "ctranslate2"):
        assert main(["export", run, "--format", format_, "-o", str(tmp_path / format_)]) == 0
        assert "forced to begin with its own" in capsys.readouterr().out
    trained = load_exact(tmp_path / "run")
    [[expected]] = translator(trained, "en", "fr").translate([ENGLISH[0]])
    source = f">>en<< {ENGLISH[0]}"

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "huggingface").eval()
    ids = torch.tensor([[*trained.tokenizer.encode_source([source])[0], 2]])
    generated = model.generate(ids, max_length=None, max_new_tokens=LENGTH + 1, no_repeat_ngram_size=2)[0].tolist()
    assert generated[1 : LENGTH + 1] == expected.ids

    tags = language_tags(trained.config.prepare, trained.tokenizer)
    assert tags is not None
    translate = ctranslate2_snippet(tmp_path / "ctranslate2")  # as docs/export.md shows, the source's tag in the text
    texts = [translate(f">>en<< {line}") for line in ENGLISH[:4]]
    own = Translator(trained.model, trained.tokenizer, trained.config.evaluation.search, trained.device, tags=tags)
    assert texts == [hypotheses[0].text for hypotheses in own.translate(ENGLISH[:4])]
    assert any(texts)
