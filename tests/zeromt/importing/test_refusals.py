"""Checkpoints that would compute, cut or search otherwise than Transformers does are refused in one line."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from data_pipeline.tokenizer import Tokenizer
from tests.conftest import Refused
from tests.zeromt.importing.test_importing import save_notebook
from tests.zeromt.their_models import TENSORS, edit, edit_tensors, imported, save_marian, save_nllb

Harm = Callable[[Path], object]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`marian` and `nllb`."""
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("checkpoints")
    save_marian(root / "marian")
    save_nllb(root / "nllb")
    return root


def setting(file: str, name: str, value: object) -> Harm:
    return lambda folder: edit(folder / file, **{name: value})


def tensors(more: Mapping[str, torch.Tensor] | None = None, *, without: str = "") -> Harm:
    return lambda folder: edit_tensors(folder / TENSORS, more, without=without)


def written(file: str, content: bytes) -> Harm:
    return lambda folder: (folder / file).write_bytes(content)


def piped(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    os.mkfifo(folder / "vocab.json")


SETTINGS: dict[str, dict[str, object]] = {
    "config.json": {
        "model_type": "t5",
        "activation_function": "gelu_new",
        "decoder_attention_heads": 1,
        "decoder_ffn_dim": 48,
        "scale_embedding": "yes",
        "vocab_size": 60,
        "eos_token_id": "x",
    },
    "generation_config.json": {
        "num_beams": "four",
        "length_penalty": "long",
        "bad_words_ids": [[5]],
        "suppress_tokens": [5, 87],
        "decoder_start_token_id": 3,
        "eos_token_id": [0, 7],
        "forced_eos_token_id": 7,
        "forced_bos_token_id": 7,
    },
}
POSITIONS = "model.encoder.embed_positions.weight"
TOKENIZER = "tokenizer_config.json"
ROWS: list[tuple[str, Harm, str]] = [
    *(("marian", setting(file, name, v), "") for file, settings in SETTINGS.items() for name, v in settings.items()),
    ("marian", setting("config.json", "encoder_layers", 3), "missing keys model.encoder.layers.2."),
    ("marian", setting("config.json", "encoder_layers", 9_999), "describes a model of"),
    ("marian", piped, "FIFO"),
    ("marian", setting("vocab.json", "new", "1"), "ids in vocab.json are not all whole numbers"),
    ("marian", written("adapter_config.json", b"{}"), "holds an adapter"),
    ("marian", tensors(without="model.shared.weight"), "missing keys"),
    ("marian", tensors(without="model.encoder.layers.1.fc2.bias"), "missing keys model.encoder.layers.1.fc2.bias;"),
    ("marian", tensors({"model.encoder.layers.2.fc1.weight": torch.ones(16)}), "unexpected keys model.encoder.layers"),
    ("marian", tensors({"model.shared.weight": torch.ones(20, 16)}), "mismatched keys ('"),
    ("marian", tensors({POSITIONS: torch.ones(40, 16)}), f"{POSITIONS} holds other positions than sinusoids"),
    ("marian", lambda folder: (folder / "target.spm").unlink(), "cannot be loaded"),
    ("marian", lambda folder: os.truncate(folder / "source.spm", 5 << 30), "has more than 268435456 bytes"),
    ("nllb", setting(TOKENIZER, "legacy_behaviour", True), "in Transformers and would be"),
    ("nllb", setting(TOKENIZER, "additional_special_tokens", ["<glossary>"]), "<glossary>"),
    ("nllb", lambda folder: (folder / "sentencepiece.bpe.model").unlink(), "sentencepiece.bpe.model cannot be read"),
    ("nllb", setting("generation_config.json", "forced_bos_token_id", 9), "forced_bos_token_id 9 is"),
]


@pytest.mark.parametrize(("kind", "harm", "said"), ROWS)
def test_refused(kind: str, harm: Harm, said: str, checkpoints: Path, tmp_path: Path, refused: Refused) -> None:
    harm(Path(shutil.copytree(checkpoints / kind, tmp_path / "theirs")))
    message = refused("import", "--huggingface", "theirs", "-o", "run")
    assert said in message
    assert message.startswith("--huggingface: ")
    assert not (tmp_path / "run").exists()


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


def test_no_code_of_the_folder_is_run(
    checkpoints: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(checkpoints / "nllb", tmp_path / "theirs"))
    canary = tmp_path / "canary"
    (folder / "own.py").write_text(f"open({str(canary)!r}, 'w')\nclass Own: pass\n")
    for file, kinds in {"config.json": ("AutoConfig", "AutoModelForSeq2SeqLM"), TOKENIZER: ("AutoTokenizer",)}.items():
        edit(folder / file, auto_map=dict.fromkeys(kinds, "own.Own"))
    imported(folder, tmp_path / "run", capsys)
    (folder / TENSORS).unlink()
    torch.save({"a": Canary(canary)}, folder / "pytorch_model.bin")
    assert TENSORS in refused("import", "--huggingface", "theirs", "-o", "other")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{state}", "--preset", "vaswani_huge", "--tokenizer", "{model}"], "there is no preset 'vaswani_huge'"),
        (["{state}", "--preset", "notebook_gelu_dk", "--tokenizer", "{model}", "--num-heads", "3"], "missing"),
        (["{state}", "--preset", "notebook_postnorm_es"], "--preset and --tokenizer"),
        (["{pickle}", "--preset", "notebook_postnorm_es", "--tokenizer", "{model}"], "is not a safetensors file"),
        (["{state}", "--preset", "notebook_postnorm_es", "--tokenizer", "{pickle}"], "is not a SentencePiece model"),
        (
            ["{state}", "--preset", "notebook_postnorm_es", "--tokenizer", "{model}", "--num-heads", "3"],
            "--tokenizer: 90 source pieces",
        ),
        (["--huggingface", "{folder}", "--preset", "x"], "--huggingface: with --preset"),
    ],
)
def test_refused_notebook(
    arguments: list[str], said: str, joint: Tokenizer, separate: Tokenizer, tmp_path: Path, refused: Refused
) -> None:
    save_notebook("notebook_postnorm_es", separate, tmp_path / "state")
    joint.save(tmp_path)
    torch.save({"a": torch.ones(1)}, tmp_path / "pickle")
    places = {n: tmp_path / n for n in ("state", "pickle")}
    filled = [a.format(**places, model=tmp_path / "tokenizer.model", folder=tmp_path) for a in arguments]
    assert said in refused("import", *filled, "-o", "run")
    assert not (tmp_path / "run").exists()
