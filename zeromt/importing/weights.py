"""Finds the weight files of a Transformers checkpoint: exactly those that its index names.

A folder may hold the remains of other checkpoints: shards of an older, larger set, or one file beside shards. If it is
not clear which are meant, the error names the files.

Of the matrices of the vocabularies, config.json says which are tied; a missing one does not count as tied.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from configs import UserError
from configs.process.files import exists, is_file
from trainer.checkpoint.format import StoredTensors
from zeromt.importing.json_files import read_json

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHOWN = 4
"""Names that a message lists at most."""


def read_weights(folder: Path) -> StoredTensors:
    """The tensors of a checkpoint, none of them read yet.

    Raises:
        UserError: there are no safetensors files, a file or a tensor is missing, or it is not clear which files are
            meant.
    """
    if is_file(folder / "adapter_config.json"):
        raise UserError(
            f"--huggingface: {folder} holds an adapter (adapter_config.json); merge it into the model "
            "(merge_and_unload, then save_pretrained), and import that"
        )
    whole, index = folder / WHOLE, folder / INDEX
    if exists(whole) and exists(index):
        raise UserError(
            f"--huggingface: {folder} holds two checkpoints, {WHOLE} and the shards of {INDEX}; delete the one that "
            "is not meant"
        )
    if exists(whole):
        return StoredTensors([whole])
    if exists(index):
        return _read_shards(folder, _weight_map(index))
    raise UserError(f"--huggingface: {folder} has no {WHOLE}{_what_is_there(folder)}")


def listed(names: Iterable[str]) -> str:
    """The first few distinct names, and how many more there are."""
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
    return ", ".join(distinct[:_SHOWN]) + more


def _what_is_there(folder: Path) -> str:
    """What is there instead, why it cannot be read, and what to do."""
    pickles = sorted(p.name for p in folder.glob("pytorch_model*.bin*"))
    others = sorted(p.name for p in folder.glob("*.safetensors"))
    if others:
        return f" and no {INDEX}, only {listed(others)}; add the index, or call the one file {WHOLE}"
    if pickles:
        return (
            f", only {listed(pickles)}: pickled weights can run code and are not read; load it with Transformers and "
            "save model and tokenizer by save_pretrained, which writes safetensors"
        )
    return "; give the folder of a whole checkpoint, saved as safetensors"


def _weight_map(index: Path) -> dict[str, str]:
    """The file of every tensor."""
    tree = read_json(index)
    weight_map = tree.get("weight_map") if isinstance(tree, Mapping) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise UserError(f"--huggingface: {index} has no weight_map of tensors and files; copy the checkpoint anew")
    if strange := [f for f in weight_map.values() if Path(f).name != f or not f.endswith(".safetensors")]:
        raise UserError(f"--huggingface: {index} names {listed(strange)}; only safetensors files beside it are read")
    return weight_map


def _read_shards(folder: Path, weight_map: Mapping[str, str]) -> StoredTensors:
    """The tensors that the index names, each from the file that it gives."""
    files = sorted(set(weight_map.values()))
    if missing := [f for f in files if not exists(folder / f)]:
        lost = [name for name, f in weight_map.items() if f in missing]
        raise UserError(
            f"--huggingface: {folder} lacks {listed(missing)}, which {INDEX} names for {listed(lost)}; "
            "copy the missing files"
        )
    held = {f: StoredTensors([folder / f]).keys() for f in files}
    for problem in (_lacking(weight_map, held), _unlisted(weight_map, held)):
        if problem:
            raise UserError(f"--huggingface: {folder}: {problem}; copy shards and index of one checkpoint anew")
    return StoredTensors([folder / f for f in files])


def _lacking(weight_map: Mapping[str, str], held: Mapping[str, Iterable[str]]) -> str:
    lost = {name: f for name, f in weight_map.items() if name not in held[f]}
    return f"{listed(lost.values())} lacks {listed(lost)}, which {INDEX} promises" if lost else ""


def _unlisted(weight_map: Mapping[str, str], held: Mapping[str, Iterable[str]]) -> str:
    extra = [(n, f) for f, names in held.items() for n in names if weight_map.get(n) != f]
    names, files = (listed(column) for column in zip(*extra, strict=True)) if extra else ("", "")
    return f"{files} holds {names}, which {INDEX} does not name there" if extra else ""


_SHARED = "model.shared.weight"
_NAMES = {
    "source_embedding.tokens.weight": "model.encoder.embed_tokens.weight",
    "target_embedding.tokens.weight": "model.decoder.embed_tokens.weight",
    "output.weight": "lm_head.weight",
}
"""This project's names to theirs."""


def ties(config: Mapping[str, Any], *, is_joint: bool) -> str:
    """`model.tied_embeddings`; three-way only if both sides also have one tokenizer: theirs may have two."""
    if not config["tie_word_embeddings"]:
        return "none"
    return "three-way" if config["share_encoder_decoder_embeddings"] and is_joint else "decoder"


def embedding_names(config: Mapping[str, Any]) -> set[str]:
    """Possible names of a vocabulary's matrices in such a checkpoint."""
    return {*_NAMES.values(), *([_SHARED] if config["share_encoder_decoder_embeddings"] else [])}


def read_embeddings(weights: StoredTensors, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The three matrices under this project's names, in fp32. If theirs are tied, one may be stored for several.

    Raises:
        UserError: a matrix is missing and not tied to another, or tied ones differ.
    """
    source, target, output = _NAMES.values()
    if not config["tie_word_embeddings"]:  # then `model.shared` is not used
        groups: list[tuple[str, ...]] = [(source,), (target,), (output,)]
    elif config["share_encoder_decoder_embeddings"]:
        groups = [(source, target, output, _SHARED)]
    else:
        groups = [(source,), (target, output)]
    matrices = {name: _read(weights, group) for group in groups for name in group}
    return {ours: matrices[theirs] for ours, theirs in _NAMES.items()}


def check_rows(matrices: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Check that the matrices have the rows and columns that config.json says.

    Raises:
        UserError: one has others.
    """
    sizes = dict.fromkeys(_NAMES, config.get("vocab_size"))
    if not config["share_encoder_decoder_embeddings"]:
        target = config.get("decoder_vocab_size") or config.get("vocab_size")
        sizes |= dict.fromkeys(("target_embedding.tokens.weight", "output.weight"), target)
    for ours, size in sizes.items():
        shape = tuple(matrices[ours].shape)
        if shape != (size or shape[0], config["d_model"]):
            raise UserError(
                f"--huggingface: {_NAMES[ours]} is {shape}; allowed is {(size or shape[0], config['d_model'])}, "
                "as config.json says"
            )


def _read(weights: StoredTensors, group: tuple[str, ...]) -> Tensor:
    """The one matrix that all names of a tied group stand for."""
    stored = [name for name in group if name in weights]
    if not stored:
        why = f", and so is {listed(group[1:])}" if len(group) > 1 else ", which config.json ties to no other matrix"
        raise UserError(f"--huggingface: {group[0]} is missing{why}; copy the whole checkpoint anew")
    first = weights[stored[0]].float()
    if unlike := [name for name in stored[1:] if not first.equal(weights[name].float())]:
        raise UserError(
            f"--huggingface: {stored[0]} and {listed(unlike)} differ, and config.json ties them; set "
            "tie_word_embeddings to false if they are meant to differ, or copy the whole checkpoint anew"
        )
    return first
