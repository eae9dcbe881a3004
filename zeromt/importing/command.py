"""`zeromt import`: makes a run of weights that others trained, to translate with and to fine-tune."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from configs import UNDETERMINED, EvaluationSection, PrepareSection, RunConfig, SearchSection, UserError
from configs.process.files import naming
from configs.process.files.inside import name_of, opened, read_bytes
from data_pipeline.tokenizer import JOINT_FILE, Tokenizer
from model import Transformer, reference
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import write_run
from trainer.inference.translation.languages import check_languages
from trainer.runs.new_folder import check_new, new_folder
from zeromt.importing.huggingface import load_checkpoint


def run(
    *,
    weights: str | None,
    preset: str | None,
    tokenizer: str | None,
    num_heads: int | None,
    huggingface: str | None,
    source_language: str | None,
    target_language: str | None,
    output: str,
    replace: bool,
) -> int:
    """Import the weights of a reference system, or a checkpoint of Transformers.

    Args:
        weights: a safetensors file with a reference system's state dict.
        preset: the reference system.
        tokenizer: a SentencePiece model for both sides, or a folder: of a dataset, of a run, or with two models.
        num_heads: of its attention; default: the preset's.
        huggingface: the folder of a Marian, M2M100 or NLLB checkpoint, instead of all these.
        source_language, target_language: what the run translates by default; M2M100 and NLLB have tags for languages.
        output: a new folder.
        replace: rename what is there before.

    Raises:
        UserError: the weights are not the system's, or the tokenizer is not theirs.
    """
    inputs = {"STATE": weights, "--tokenizer": tokenizer, "--huggingface": huggingface}
    check_new(Path(output), inputs if replace else None, replaces=replace)
    given = [n for n, v in (("STATE", weights), ("--preset", preset), ("--tokenizer", tokenizer)) if v]
    if huggingface is not None and given:
        raise UserError(f"--huggingface: with {given[0]}; give --huggingface DIR -o RUN alone")
    with new_folder(Path(output), replaces=replace) as made:
        if huggingface is not None:
            lines = _import_huggingface(huggingface, source_language, target_language, made, Path(output))
        elif weights is not None and preset is not None and tokenizer is not None:
            lines = _import_reference(Path(weights), preset, Path(tokenizer), num_heads, made, Path(output))
        else:
            raise UserError("import: give STATE.safetensors with --preset and --tokenizer, or --huggingface DIR")
    print("\n".join(lines))
    return 0


def _import_huggingface(
    folder: str, source_language: str | None, target_language: str | None, made: Path, output: Path
) -> list[str]:
    with naming("--huggingface"):
        loaded = load_checkpoint(Path(folder))
    section = PrepareSection(
        source_language=source_language or loaded.source_language or UNDETERMINED,
        target_language=target_language or loaded.target_language or UNDETERMINED,
        tag_both_sides=loaded.has_languages,
    )
    check_languages(section, loaded.tokenizer)
    origin = {"command": "import", "huggingface": folder}
    save_model(loaded.model, loaded.tokenizer, made, output, origin=origin, prepare=section, search=loaded.search)
    languages = (
        f"languages: {section.source_language} to {section.target_language}; --source-language and --target-language "
        "name others, when importing and when translating"
    )
    return [f"imported {folder}: {output}", *loaded.notes, *([languages] if loaded.has_languages else [])]


def _import_reference(
    weights: Path, preset: str, tokenizer: Path, num_heads: int | None, made: Path, output: Path
) -> list[str]:
    state = read_state(weights)
    pieces = read_tokenizer(tokenizer)
    heads = num_heads or reference.default_num_heads(preset)
    model = reference.load(preset, state, num_heads=heads)
    for side, given, wanted in (
        ("source", pieces.source_vocab_size, model.source_embedding.tokens.num_embeddings),
        ("target", pieces.target_vocab_size, model.target_embedding.tokens.num_embeddings),
    ):
        if given != wanted:
            raise UserError(f"--tokenizer: {given} {side} pieces; allowed is {wanted}, as the weights have")
    save_model(model, pieces, made, output, origin={"command": "import", "preset": preset, "weights": str(weights)})
    whose = "" if num_heads else ", as many as the preset has: --num-heads says otherwise"
    return [f"imported {weights} as {preset}: {output}; {heads} heads{whose}"]


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Other formats are not read: they can run code.

    Raises:
        UserError: it is not such a file.
    """
    try:
        with opened(path) as file:
            return load_file(name_of(file))
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"STATE: {str(path)!r} is not a safetensors file ({error}); "
            "allowed is one, made by `safetensors.torch.save_file(model.state_dict(), FILE)`"
        ) from error


def read_tokenizer(path: Path) -> Tokenizer:
    """A SentencePiece model for both sides, or the tokenizer of a folder.

    Raises:
        UserError: it cannot be read, or has different special pieces.
    """
    if path.is_dir():
        return Tokenizer.load(path)
    try:
        return Tokenizer({JOINT_FILE: read_bytes(path)})
    except OSError as error:
        raise UserError(f"--tokenizer: {str(path)!r} cannot be read: {error.strerror}") from error


def save_model(
    model: Transformer,
    tokenizer: Tokenizer,
    folder: Path,
    output: Path,
    *,
    origin: Mapping[str, Any],
    prepare: PrepareSection | None = None,
    search: SearchSection | None = None,
) -> None:
    """Write a run at step 0 with the model's weights.

    Args:
        model: in fp32.
        tokenizer: of its vocabularies.
        folder: a new one, which is renamed to `output`.
        output: the run's.
        origin: for the manifest.
        prepare: its languages and their tags, if they are known.
        search: its search settings, if they are known.

    Raises:
        UserError: the folder cannot be written, or its name is not a valid name of a run.
    """
    parameters = dict(model.named_parameters())
    prepare = prepare or PrepareSection()
    room = model.max_positions - 1 - bool(tokenizer.tags)  # for EOS and a language's tag
    prepare = dataclasses.replace(prepare, max_pieces=min(prepare.max_pieces, room))
    evaluation = dataclasses.replace(EvaluationSection(), search=search or SearchSection())
    config = dataclasses.replace(RunConfig(), model=model.section, prepare=prepare, evaluation=evaluation)
    write_run(
        folder,
        output,
        config,
        tokenizer,
        tensors=((name, p.detach()) for name, p in parameters.items()),
        state=TrainerState(),
        data_fingerprints=[],
        origin=origin,
    )
