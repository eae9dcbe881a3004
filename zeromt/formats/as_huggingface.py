"""Export for Hugging Face Transformers, in the one of its architectures that computes the same function.

    post-norm: MarianMTModel          pre-norm: PegasusForConditionalGeneration, whose sinusoids are those of the paper,
                                      or BlenderbotForConditionalGeneration, which stores its positions as weights

The three have the same names of weights. Marian and Pegasus put all sines before all cosines. If ours are interleaved,
the dimensions of the residual stream are reordered in every weight that reads or writes it: the function stays the same
(norms and residual sums do not depend on the order), and the table is the architecture's own.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs import ModelSection, SearchSection, UserError
from data_pipeline.tokenizer import BOS_ID, EOS_ID, JOINT_FILE, PAD_ID, SOURCE_FILE, TARGET_FILE, Tokenizer, tag_of
from trainer.inference.loading import TrainedModel
from trainer.inference.translation.languages import own_language_tags
from zeromt.formats.check import Sample, Text, check_logits
from zeromt.formats.plain import optional, part_problems, parts, plain_weights, tag_notes
from zeromt.formats.search_file import longest_of_all, mean_penalty, write_search

OPTION = "--format huggingface"
_PROGRAM = "huggingface"
"""The name of this format in the model's parts."""
_NAMES = {
    ".self_attention_residual.norm.": ".self_attn_layer_norm.",
    ".cross_attention_residual.norm.": ".encoder_attn_layer_norm.",
    ".feed_forward_residual.norm.": ".final_layer_norm.",
    ".norm.": ".layer_norm.",
    ".self_attention.": ".self_attn.",
    ".cross_attention.": ".encoder_attn.",
    ".query.": ".q_proj.",
    ".key.": ".k_proj.",
    ".value.": ".v_proj.",
    ".output.": ".out_proj.",
    ".feed_forward.inner.": ".fc1.",
    ".feed_forward.outer.": ".fc2.",
}
"""Parts of this project's names, and theirs."""


def export(trained: TrainedModel, folder: Path, sample: Sample, text: Text | None, *, dtype: torch.dtype) -> list[str]:
    """Write the folder and check it; returns notes for the user.

    Raises:
        UserError: Transformers does not support the model, or is not installed.
        ExportError: the exported model computes something else.
        OSError: it cannot be written.
    """
    section, tokenizer = trained.config.model, trained.tokenizer
    refuse(problems(section), "Transformers")
    transformers = load_transformers(OPTION)
    kind = architecture(section)
    config = getattr(transformers, f"{kind}Config")(**configuration(section, tokenizer))
    name = "MarianMTModel" if kind == "Marian" else f"{kind}ForConditionalGeneration"
    model = getattr(transformers, name)(config).eval()
    _fill(model, state_dict(trained))
    searched = generation(section, trained.config.evaluation.search)
    if tags := own_language_tags(trained.config.prepare, tokenizer):
        searched["forced_bos_token_id"] = tags.target
    model.generation_config = transformers.GenerationConfig(**searched)
    model.save_pretrained(folder)
    save_tokenizer(transformers, tokenizer, folder, max_length=section.max_positions)
    exported = transformers.AutoTokenizer.from_pretrained(folder)
    notes = [name, *check_tokenizer(exported, tokenizer, text)]
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    notes.append(f"logits within {check_logits(trained.model, sample, _logits_of(again)):.1g} of the model's")
    if dtype != torch.float32:
        model.to(dtype).save_pretrained(folder)
        notes.append(f"checked in float32, stored in {str(dtype).removeprefix('torch.')}")
    notes += write_search(folder, trained.config, tokenizer)
    return [*notes, *tag_notes(tokenizer, lambda lines: exported(lines, add_special_tokens=False)["input_ids"])]


def problems(section: ModelSection) -> Iterator[str]:
    """The options that no architecture of Transformers supports, one line each."""
    yield from part_problems(section, _PROGRAM)
    is_post_norm = section.residual.is_post_norm
    if section.has_final_norm is is_post_norm:
        given, wanted = ("true", "false") if section.has_final_norm else ("false", "true")
        yield f"model.final_norm: {given} with {section.residual.kind}; allowed is {wanted}"
    if not is_post_norm and section.tied_embeddings != "three-way":
        yield f"model.tied_embeddings: {section.tied_embeddings!r} with pre-norm; allowed is three-way"


def refuse(problems: Iterator[str], program: str) -> None:
    """Refuse an export, giving all reasons.

    Raises:
        UserError: there is a reason.
    """
    if lines := list(problems):
        raise UserError(f"{'; '.join(lines)} (for {program}; a checkpoint's own files hold every model as safetensors)")


def architecture(section: ModelSection) -> str:
    """The prefix of Transformers' class names."""
    if section.residual.is_post_norm:
        return "Marian"
    return "Pegasus" if section.positions.has_own_table(_PROGRAM) else "Blenderbot"


def configuration(section: ModelSection, tokenizer: Tokenizer) -> dict[str, Any]:
    """The fields of Transformers' configuration."""
    config: dict[str, Any] = {
        "vocab_size": tokenizer.source_vocab_size,
        "d_model": section.d_model,
        "encoder_layers": section.encoder_layers,
        "decoder_layers": section.decoder_layers,
        "max_position_embeddings": section.max_positions,
        "scale_embedding": section.scale_embeddings,
        "dropout": section.dropout,
        "tie_word_embeddings": section.tied_embeddings != "none",
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": EOS_ID,
    }
    for part in parts(section):
        config |= part.exported(_PROGRAM, section)
    if section.residual.is_post_norm:
        config["decoder_vocab_size"] = tokenizer.target_vocab_size
        config["share_encoder_decoder_embeddings"] = section.tied_embeddings == "three-way"
    return config


def generation(section: ModelSection, search: SearchSection) -> dict[str, Any]:
    """The default search of `generate`; see `search_file` for what it cannot express."""
    longest = longest_of_all(search, section.max_positions)
    options: dict[str, Any] = {}
    if search.beam > 1:  # a patience of 1, or no patience
        options |= {"length_penalty": mean_penalty(search), "early_stopping": True if search.patience else "never"}
    if search.no_repeat_ngram:
        options["no_repeat_ngram_size"] = search.no_repeat_ngram
    if search.min_length_extra:
        options["min_length"] = search.min_length_extra
    if search.sampler is not None:
        options |= search.sampler.exported("huggingface") or {}
    return {
        "num_beams": search.beam,
        **options,
        "max_length": min(longest + 1, section.max_positions),  # BOS is counted too
        "suppress_tokens": [PAD_ID, BOS_ID],
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": EOS_ID,
    }


def state_dict(trained: TrainedModel) -> dict[str, Tensor]:
    """The weights under Transformers' names."""
    section = trained.config.model
    weights = plain_weights(trained.model)
    order = section.positions.sines_first(section.d_model)
    if architecture(section) != "Blenderbot" and order is not None:
        weights = reordered(weights, torch.tensor(order))
    renamed = {
        "lm_head.weight": weights["output.weight"],
        "final_logits_bias": weights["output.bias"][None],
        "model.shared.weight": weights["source_embedding.tokens.weight"],
    }
    for stack, embedding in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
        renamed[f"model.{stack}.embed_tokens.weight"] = weights[f"{embedding}.tokens.weight"]
        renamed[f"model.{stack}.embed_positions.weight"] = weights[f"{embedding}.positions"]
    for name, tensor in weights.items():
        if (theirs := their_name(name)) is not None:
            renamed[theirs] = tensor
    return renamed


def reordered(weights: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """The same function with the dimensions of the residual stream in another order."""
    ordered = {}
    for name, tensor in weights.items():
        parts = name.split(".")
        writes = parts[-2] == "outer" or (parts[-2] == "output" and len(parts) > 2)  # `output.weight` is the logits'
        if writes or parts[-2] == "norm":  # (D, ...) or (D): weights that write to the stream, and its norms
            ordered[name] = tensor[order]
        elif parts[-1] in ("weight", "positions"):  # (..., D): weights that read it, and embeddings
            ordered[name] = tensor[:, order]
        else:  # biases of those that read it
            ordered[name] = tensor
    return ordered


def their_name(name: str) -> str | None:
    """Transformers' name of a weight of the layers or of a final norm; None for others."""
    if not name.startswith(("encoder.", "decoder.")):
        return None
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return f"model.{name}"


def load_transformers(option: str) -> Any:
    """The package, without progress bars, warnings and advice on packages that are not used here.

    Args:
        option: that needs it.

    Raises:
        UserError: it is not installed.
    """
    transformers = optional("transformers", option)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", message=".*sacremoses")
    return transformers


def _fill(model: Any, state: Mapping[str, Tensor]) -> None:
    """Fill a Transformers model; every weight must be there."""
    missing, unexpected = model.load_state_dict(state, strict=False)
    unknown = [n for n in unexpected if n != "model.shared.weight"]  # untied models do not have it
    assert not missing, f"{missing} have no value"
    assert not unknown, f"{unknown} have no place"


def _logits_of(model: Any) -> Any:
    def logits(source_BS: Tensor, target_BT: Tensor) -> Tensor:
        with torch.inference_mode():
            mask = (source_BS != PAD_ID).long()
            out: Tensor = model(input_ids=source_BS, attention_mask=mask, decoder_input_ids=target_BT).logits
        return out

    return logits


_NUM_LINES = 200


def save_tokenizer(transformers: Any, tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """Write its files. Marian's tokenizer itself finds a tag at the beginning of a text and looks it up literally.

    Raises:
        OSError: they cannot be written.
    """
    files = tokenizer.files()
    spm = {"source": files.get(JOINT_FILE) or files[SOURCE_FILE], "target": files.get(JOINT_FILE) or files[TARGET_FILE]}
    for side, content in spm.items():
        (folder / f"{side}.spm").write_bytes(content)
    vocabularies = {"vocab.json": tokenizer.source_vocabulary()}
    if not tokenizer.is_joint:
        vocabularies["target_vocab.json"] = tokenizer.target_vocabulary()
    for name, pieces in vocabularies.items():
        ids = {tag_of(piece) or piece: i for i, piece in enumerate(pieces)}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False, indent=1), encoding="utf-8")
    transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        target_vocab_file=None if tokenizer.is_joint else str(folder / "target_vocab.json"),
        separate_vocabs=not tokenizer.is_joint,
        model_max_length=max_length,
        split_special_tokens=True,  # `</s>` in a text is ordinary text
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def check_tokenizer(theirs: Any, ours: Tokenizer, text: Text | None) -> list[str]:
    """Notes on differences between the two tokenizers on some text; empty if they agree or there is no text."""
    if text is None:
        return []
    sources = text.sources[:_NUM_LINES]
    encoded = theirs(sources, truncation=False)["input_ids"]
    wrong = sum([*ids, EOS_ID] != row for ids, row in zip(ours.encode_source(sources), encoded, strict=True))
    return [f"tokenizer: {wrong} of {len(sources)} sources have other pieces"] if wrong else []
