"""Small runs with random weights, norms and biases among them, so that every weight matters."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import (
    EngineSection,
    EvaluationSection,
    ModelSection,
    PrepareSection,
    RunConfig,
    SearchSection,
    TokenizerSection,
)
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.tokenizer import Tokenizer
from model import Transformer
from tests.model.flat import section_of
from trainer.checkpoint.model_files import build_model
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import write_run

EXPORTS = Path(__file__).parents[2] / "docs" / "export.md"
TAG = ">>fra<<"
ENGLISH = [
    f"{w} {n} times" for n in range(60) for w in ("the cat sat on a mat", "dogs do not jump", "quick brown foxes")
]
FRENCH = [f"{w} {n} fois" for n in range(60) for w in ("le chat est sur un tapis", "les chiens non", "renards bruns")]
SMALL: dict[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "max_positions": 32,
}


def make_tokenizer(*, joint: bool = True, **options: Any) -> Tokenizer:
    """A tokenizer of ENGLISH and FRENCH with a tag, or with other options."""
    fields: dict[str, Any] = (
        {"vocabulary": "joint", "vocab_size": 90} if joint else {"vocabulary": "separate", "vocab_size": 70}
    )
    return train_tokenizer(TokenizerSection(**{"threads": 1, "tags": [TAG], **fields, **options}), ENGLISH, FRENCH)


def make_model(section: ModelSection, tokenizer: Tokenizer, *, seed: int = 1) -> Transformer:
    model = build_model(section, tokenizer, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            else:
                parameter.add_(0.1 * noise)
    return model


def make_run(
    folder: Path,
    tokenizer: Tokenizer,
    *,
    seed: int = 1,
    step: int = 7,
    dataset: str = "nowhere",
    precision: Any = "auto",
    search: SearchSection | None = None,
    languages: tuple[str, str] = ("en", "de"),
    **options: Any,
) -> Transformer:
    """A run of weights alone in a new folder; the model that it holds."""
    section = section_of(**{**SMALL, **options})
    model = make_model(section, tokenizer, seed=seed)
    parameters = dict(model.named_parameters())
    folder.mkdir()
    config = dataclasses.replace(
        RunConfig(),
        model=section,
        engine=EngineSection(precision=precision),
        seed=seed,
        prepare=PrepareSection(
            max_pieces=31, output=dataset, source_language=languages[0], target_language=languages[1]
        ),
        evaluation=EvaluationSection(search=search or SearchSection()),
    )
    write_run(
        folder,
        folder,
        config,
        tokenizer,
        tensors=((name, p.detach()) for name, p in parameters.items()),
        state=TrainerState(step=step),
        data_fingerprints=[],
        origin={"command": "test"},
    )
    return model


def greedy(model: Transformer, tokenizer: Tokenizer, lines: list[str], *, longest: int = 12) -> list[list[int]]:
    """The best token at each step from the whole logits, without the search: ids up to EOS or a limit."""
    hypotheses = []
    for ids in tokenizer.encode_source(lines):
        source, target = torch.tensor([[*ids, 2]]), [1]
        while len(target) <= longest and target[-1] != 2:
            with torch.no_grad():
                logits = model.output(model(source, torch.tensor([target])))[0, -1]
            logits[:2] = -torch.inf
            target.append(int(logits.argmax()))
        hypotheses.append([i for i in target[1:] if i != 2])
    return hypotheses


def snippet(word: str, folder: Path, **names: Any) -> Callable[[str], str]:
    """`translate` of the page's piece of code that has a word in it, for an export in a folder."""
    blocks = re.findall(r"```python\n(.*?)```", EXPORTS.read_text(), re.DOTALL)
    [code] = [code for code in blocks if word in code and "def do_POST" not in code]
    scope: dict[str, Any] = {"json": json, "Path": Path, **names}
    exec(re.sub('"(out|served)', lambda _: f'"{folder}', code), scope)
    translate: Callable[[str], str] = scope["translate"]
    return translate


def ctranslate2_snippet(folder: Path) -> Callable[[str], str]:
    ctranslate2 = pytest.importorskip("ctranslate2")
    from sentencepiece import SentencePieceProcessor

    return snippet("translate_batch", folder, ctranslate2=ctranslate2, SentencePieceProcessor=SentencePieceProcessor)
