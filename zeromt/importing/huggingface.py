"""Checkpoints of Hugging Face Transformers: Marian, Pegasus as this project exports it, M2M100 and NLLB.

Transformers itself loads model and tokenizer, and what it computes with them is what counts: pieces of some lines and
logits of the imported model are compared with its own. Pickled weights, which can run code, and code in the folder are
never loaded.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from configs import ModelSection, SearchSection, UserError, preset_model
from configs.components import kinds
from configs.process.files import is_file
from configs.process.files.inside import opened, read_bytes, read_json
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from model import SpecialIds, Transformer, build_transformer
from model.flops import Vocabularies as Sizes
from model.flops import parameters
from zeromt.formats.as_huggingface import load_transformers, their_name
from zeromt.formats.check import check_logits, make_sample
from zeromt.importing.generation import read_search
from zeromt.importing.pieces import Vocabularies, language_of, read_vocabularies

NEVER = -100.0
"""The bias of pieces that their model cannot generate."""
_KINDS: dict[str, dict[str, Any]] = {
    "marian": {"residual": "post", "positions": {"layout": "halves"}},
    "pegasus": {"residual": "pre", "positions": {"layout": "halves"}},
    "m2m_100": {"residual": "pre", "positions": {"layout": "tensor2tensor"}},
}
"""Fields of the section `model` by `model_type`."""
_EMBEDDINGS = {
    "source_embedding.tokens.weight": "model.encoder.embed_tokens.weight",
    "target_embedding.tokens.weight": "model.decoder.embed_tokens.weight",
    "output.weight": "lm_head.weight",
}
"""This project's names to theirs."""
_TABLE_TOLERANCE = 1e-2
"""Tolerance between tables of sinusoids, which are rounded in half precision."""
_FEW_NUMBERS = 1 << 24
"""Numbers that a model may have whatever its files hold; more only if they hold as many bytes."""
_LINES = ["A dog, 12 dogs.", "The house on the left was sold last year."]
_SHOWN = 3


class Loaded(NamedTuple):
    """The contents of a checkpoint."""

    model: Transformer
    """In fp32 on the CPU."""
    vocabularies: Vocabularies
    has_languages: bool
    """Sources and translations each begin with a tag of their language."""
    source_language: str | None
    target_language: str | None
    """None: the checkpoint names none."""
    search: SearchSection
    notes: list[str]

    @property
    def tokenizer(self) -> Tokenizer:
        """Of both sides."""
        return self.vocabularies.tokenizer


def load_checkpoint(folder: Path) -> Loaded:
    """Load a checkpoint, and compare it with what Transformers computes.

    Raises:
        UserError: it is of another architecture, not whole, or holds something that this project does not have.
        ExportError: the model computes something else here.
    """
    transformers = load_transformers("--huggingface")
    theirs, tokenizer = _load(transformers, folder)
    config, state = theirs.config, theirs.state_dict()
    matrices = {ours: state[name].float() for ours, name in _EMBEDDINGS.items()}
    sizes = len(matrices["source_embedding.tokens.weight"]), len(matrices["output.weight"])
    vocabularies = read_vocabularies(folder, tokenizer, config, sizes=sizes)
    given = state.get("final_logits_bias", torch.zeros(1, sizes[1]))[0][vocabularies.target.rows]
    bias = given.clone()
    bias[vocabularies.target.never] = NEVER
    ties = _ties(matrices, is_joint=vocabularies.tokenizer.is_joint)
    section = _section(config, ties=ties, has_bias=bool(bias.any()))
    model = build_transformer(
        section,
        source_vocab_size=len(vocabularies.source.rows),
        target_vocab_size=len(vocabularies.target.rows),
        special=SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID),
        seed=0,
    ).eval()
    _fill(model, state, matrices, vocabularies, bias)
    _check_positions(model, state)
    has_languages = config.model_type == "m2m_100"
    _check_pieces(vocabularies, tokenizer, has_languages=has_languages)
    sample = make_sample(model, vocabularies.tokenizer, None, longest=40)
    largest = check_logits(model, sample, _logits(theirs, vocabularies, bias - given))
    with _reading(folder):
        search, notes = read_search(theirs.generation_config, config)
        source, target = _languages(theirs.generation_config, tokenizer, has_languages=has_languages)
    return Loaded(
        model=model,
        vocabularies=vocabularies,
        has_languages=has_languages,
        source_language=source,
        target_language=target,
        search=search,
        notes=[f"logits within {largest:.1g} of Transformers'", *notes],
    )


def _load(transformers: Any, folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of Transformers.

    Raises:
        UserError: the folder is not a whole checkpoint of a known architecture.
    """
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _reading(folder):
        for path in folder.iterdir():  # no FIFO, and no JSON or SentencePiece model beyond bounds
            if path.suffix == ".json":
                read_json(path)
            elif path.suffix in (".spm", ".model"):
                read_bytes(path)
            elif is_file(path):
                opened(path).close()
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        _check_config(config, folder)
        theirs, told = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if names := sorted(map(str, told[what])):
                shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
                problem = f"{what.replace('_', ' ')} {shown}"
                raise UserError(f"--huggingface: {folder}: {problem}; give weights and config.json of one checkpoint")
        return theirs.eval(), transformers.AutoTokenizer.from_pretrained(folder, **options)


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Whatever Transformers raises over a folder, in one line.

    Raises:
        UserError: it has raised something.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"--huggingface: {folder}: cannot be loaded: {lines[0]}; give a whole Marian, M2M100 or NLLB checkpoint, "
            "its weights saved as safetensors by Transformers' save_pretrained"
        ) from error


def _check_config(config: Any, folder: Path) -> None:
    """Check, before memory is taken for the model, that there is such a model here and that its weights are there.

    Raises:
        UserError: naming the field.
    """
    if is_file(folder / "adapter_config.json"):
        raise UserError(
            f"--huggingface: {folder} holds an adapter (adapter_config.json); merge it into the model "
            "(merge_and_unload, then save_pretrained), and import that"
        )
    for name, allowed in (
        ("model_type", list(_KINDS)),
        ("activation_function", list(_activations())),
        ("decoder_attention_heads", [getattr(config, "encoder_attention_heads", None)]),
        ("decoder_ffn_dim", [getattr(config, "encoder_ffn_dim", None)]),
    ):
        if (value := getattr(config, name, None)) not in allowed:
            raise UserError(f"--huggingface: {name} {value!r}; allowed is {', '.join(map(str, allowed))}")
    sizes = Sizes(source=config.vocab_size, target=getattr(config, "decoder_vocab_size", None) or config.vocab_size)
    section = _section(config, ties="three-way" if sizes.source == sizes.target else "decoder", has_bias=False)
    layers = {"encoder.layers.": section.encoder_layers, "decoder.layers.": section.decoder_layers}
    shallow = dataclasses.replace(section, encoder_layers=1, decoder_layers=1)  # of what may be thousands
    numbers = section.max_positions * section.d_model
    for parameter in parameters(shallow, sizes):
        numbers += parameter.size * layers.get(parameter.name[: len("encoder.layers.")], 1)
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if numbers > max(held, _FEW_NUMBERS):
        raise UserError(
            f"--huggingface: {folder}: its config.json describes a model of {numbers:,} numbers, and its weights "
            f"(*.safetensors) have {held:,} bytes; give weights and config.json of one checkpoint"
        )


def _activations() -> dict[str, str]:
    """Kinds of `model.feed_forward` by Transformers' names of their activations."""
    parts = kinds("feed_forward").items()
    by_name = {part.program_names["huggingface"]: kind for kind, part in parts if "huggingface" in part.programs}
    return {"swish": by_name["silu"], **by_name}


def _section(config: Any, *, ties: str, has_bias: bool) -> ModelSection:
    """The model's options."""
    fixed = _KINDS[config.model_type]
    offset = config.pad_token_id + 1 if config.model_type == "m2m_100" else 0
    section = {
        "residual": fixed["residual"],
        "positions": {**fixed["positions"], "offset": offset},
        "attention": {"num_heads": config.encoder_attention_heads, "dropout": config.attention_dropout},
        "feed_forward": {
            "kind": _activations()[config.activation_function],
            "d_ff": config.encoder_ffn_dim,
            "dropout": config.activation_dropout,
        },
        "tied_embeddings": ties,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "max_positions": config.max_position_embeddings,
        "scale_embeddings": config.scale_embedding,
        "output_bias": has_bias,
        "dropout": config.dropout,
    }
    return preset_model(None, section)


def _ties(matrices: Mapping[str, Tensor], *, is_joint: bool) -> str:
    """`model.tied_embeddings`: equal matrices are one; all three only with one tokenizer for both sides."""
    source, target, output = matrices.values()
    if not target.equal(output):
        return "none"
    return "three-way" if is_joint and source.equal(target) else "decoder"


@torch.no_grad()
def _fill(
    model: Transformer,
    state: Mapping[str, Tensor],
    matrices: Mapping[str, Tensor],
    vocabularies: Vocabularies,
    bias: Tensor,
) -> None:
    for name, parameter in model.named_parameters():
        if name == "output.bias":
            parameter.copy_(bias)
        elif name in matrices:
            side = vocabularies.source if name.startswith("source") else vocabularies.target
            parameter.copy_(matrices[name][side.rows])
        else:
            parameter.copy_(state[str(their_name(name))])


def _check_positions(model: Transformer, state: Mapping[str, Tensor]) -> None:
    """Check that stored positions are the sinusoids, and replace them by these, which half precision has rounded.

    Raises:
        UserError: they are others.
    """
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        name = f"model.{stack}.embed_positions.weight"
        if (stored := state.get(name)) is None:  # M2M100 computes its own
            continue
        table: Any = model.get_submodule(f"{side}_embedding").positions.table  # type: ignore[union-attr]
        if not (stored - table).abs().max() <= _TABLE_TOLERANCE:
            raise UserError(f"--huggingface: {name} holds other positions than sinusoids; allowed are those")
        stored.copy_(table)


def _logits(theirs: Any, vocabularies: Vocabularies, change_V: Tensor) -> Any:
    """Their logits of our ids, with the change of the bias that excludes the pieces of `never`."""
    source_rows, target_rows = (torch.tensor(side.rows) for side in (vocabularies.source, vocabularies.target))

    def logits(source_BS: Tensor, target_BT: Tensor) -> Tensor:
        with torch.inference_mode():
            out: Tensor = theirs(
                input_ids=source_rows[source_BS],
                attention_mask=(source_BS != PAD_ID).long(),
                decoder_input_ids=target_rows[target_BT],
            ).logits
        return out[..., target_rows] + change_V

    return logits


def _check_pieces(vocabularies: Vocabularies, theirs: Any, *, has_languages: bool) -> None:
    """Check that lines are cut into the same pieces, with EOS and the language's tag in the same places.

    Raises:
        UserError: they are not.
    """
    tag = f">>{theirs.src_lang}<< " if has_languages else ""
    ours = vocabularies.tokenizer.encode_source([f"{tag}{line}" for line in _LINES])
    rows = [[vocabularies.source.rows[i] for i in (*ids, EOS_ID)] for ids in ours]
    for line, expected, row in zip(_LINES, theirs(_LINES)["input_ids"], rows, strict=True):
        if expected != row:
            raise UserError(
                f"--huggingface: {line!r} is {expected} in Transformers and would be {row} here; give a checkpoint "
                "whose tokenizer is its SentencePiece model alone, with EOS last and a language first"
            )


def _languages(generation: Any, tokenizer: Any, *, has_languages: bool) -> tuple[str | None, str | None]:
    """Languages of source and translations, if the checkpoint names that of the translations.

    Raises:
        UserError: a piece is forced that is not a language.
    """
    forced = generation.forced_bos_token_id
    source, target = (tokenizer.init_kwargs.get(name) for name in ("src_lang", "tgt_lang"))
    if forced is not None:
        piece = str(tokenizer.convert_ids_to_tokens(forced))
        target = language_of(piece) if has_languages else None
        if target is None:
            raise UserError(f"--huggingface: forced_bos_token_id {forced} is {piece!r}; allowed is a language, or none")
    return (source, target) if target is not None else (None, None)  # `src_lang` alone is Transformers' default
