"""Export for CTranslate2: a folder written through its own specification API, with the SentencePiece models."""

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor
from torch.nn import functional as F

from configs import ModelSection, RunConfig, SearchSection, UserError
from configs.components import ScoredText, make
from data_pipeline.tokenizer import EOS_ID, JOINT_FILE, SOURCE_FILE, Tokenizer, as_symbols
from model import Transformer
from trainer.inference.loading import TrainedModel
from trainer.inference.translation.languages import LanguageTags, encode_source, own_language_tags
from trainer.metrics.scoring import Scorer
from zeromt.formats.as_huggingface import refuse
from zeromt.formats.check import Sample, Text, accept, logits_of, pad
from zeromt.formats.plain import optional, part_problems, parts, plain_weights, tag_notes
from zeromt.formats.search_file import ctranslate2_options, write_search

_PROGRAM = "ctranslate2"
"""Its name in the model's parts."""
OPTION = f"--format {_PROGRAM}"
_BATCH = 32
_THREADS = 1

Weights = Mapping[str, Tensor]


def _problems(section: ModelSection) -> Iterator[str]:
    """The options that CTranslate2 does not support, one line each."""
    yield from part_problems(section, _PROGRAM)
    if section.has_final_norm and section.residual.is_post_norm:
        yield f"model.final_norm: true with {section.residual.kind}; allowed is false"


def export(
    trained: TrainedModel, folder: Path, sample: Sample, text: Text | None, *, quantization: str | None
) -> list[str]:
    """Write the folder, check it and then quantise it; returns notes for the user.

    Raises:
        UserError: CTranslate2 does not support the model, or is not installed.
        ExportError: the exported model computes something else.
        OSError: it cannot be written.
    """
    refuse(_problems(trained.config.model), "CTranslate2")
    ctranslate2 = optional("ctranslate2", OPTION)
    is_rounded = quantization not in (None, "float32")
    full = folder / "float32" if is_rounded else folder
    _save(ctranslate2, trained, full, None)
    translator = _load(ctranslate2, full)
    largest = check_log_probabilities(trained.model, trained.tokenizer, sample, translator)
    notes = [f"log-probabilities within {largest:.1g} of the model's"]
    if is_rounded:
        _save(ctranslate2, trained, folder, quantization)
        bleu = _bleu(trained, text, {"float32": translator, str(quantization): _load(ctranslate2, folder, "default")})
        notes.append(f"checked before quantising to {quantization}; {bleu}")
        shutil.rmtree(full)
    for name, content in trained.tokenizer.files().items():
        (folder / name).write_bytes(as_symbols(content))
    options = ctranslate2_options(trained.config.evaluation.search, trained.model.max_positions)
    notes += write_search(folder, trained.config, trained.tokenizer, options=options)
    name = JOINT_FILE if trained.tokenizer.is_joint else SOURCE_FILE
    return [*notes, *tag_notes(trained.tokenizer, SentencePieceProcessor(model_file=str(folder / name)).encode)]


def build_spec(ctranslate2: Any, config: RunConfig, tokenizer: Tokenizer, weights: Weights) -> Any:
    """The specification of the model: ctranslate2.specs.TransformerSpec."""
    specs, section = ctranslate2.specs, config.model
    options = _options(section)
    options["activation"] = getattr(specs.common_spec.Activation, options["activation"])
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(section.encoder_layers, **options),
        specs.TransformerDecoderSpec(section.decoder_layers, **options),
    )
    _fill_stack(ctranslate2, spec.encoder, spec.encoder.embeddings[0], "encoder", "source_embedding", section, weights)
    _fill_stack(ctranslate2, spec.decoder, spec.decoder.embeddings, "decoder", "target_embedding", section, weights)
    spec.decoder.projection.weight = weights["output.weight"].contiguous()
    if section.output_bias:
        spec.decoder.projection.bias = weights["output.bias"]
    spec.register_source_vocabulary(tokenizer.source_vocabulary())
    spec.register_target_vocabulary(tokenizer.target_vocabulary())
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = section.norm.plain_eps(section.d_model)
    return spec


def _options(section: ModelSection) -> dict[str, Any]:
    """The names of the model's parts in CTranslate2's specifications."""
    options: dict[str, Any] = {"no_final_norm": not section.has_final_norm}
    for part in parts(section):
        options |= part.exported(_PROGRAM, section)
    return options


def check_log_probabilities(model: Transformer, tokenizer: Tokenizer, sample: Sample, translator: Any) -> float:
    """Compare the log-probabilities of given target tokens and EOS with the model's; returns the largest difference.

    Raises:
        ExportError: they differ by more than the tolerance.
    """
    source_pieces, target_pieces = tokenizer.source_vocabulary(), tokenizer.target_vocabulary()
    largest = 0.0
    for source, target in zip(sample.sources, sample.targets, strict=True):
        logits_TV = logits_of(model, pad([source]), pad([target]))[0]
        wanted_T = torch.tensor([*target[1:], EOS_ID])
        ours_T = F.log_softmax(logits_TV, -1).gather(1, wanted_T[:, None])[:, 0]
        scored = translator.score_batch(
            [[source_pieces[i] for i in source[:-1]]], [[target_pieces[i] for i in target[1:]]], max_input_length=0
        )[0]
        theirs_T = torch.tensor(scored.log_probs)
        same_length = theirs_T.shape == ours_T.shape
        largest = max(largest, float((ours_T - theirs_T).abs().max()) if same_length else float("inf"))
    return accept(largest, "log-probabilities")


class Exported:
    """An exported model that translates as its run does.

    Args:
        folder: of the export, or a translator that was loaded.
        tokenizer: the run's.
        search: the run's.
        max_positions: the model's.
        workers: batches that are translated at a time.
    """

    def __init__(
        self, folder: Any, tokenizer: Tokenizer, search: SearchSection, *, max_positions: int, workers: int = 1
    ) -> None:
        if isinstance(folder, Path):
            folder = _load(optional("ctranslate2", OPTION), folder, "default", workers)
        self._translator, self._tokenizer, self._search, self._longest = folder, tokenizer, search, max_positions
        self._pieces = tokenizer.source_vocabulary()
        self._ids_of = {piece: i for i, piece in enumerate(tokenizer.target_vocabulary())}

    def candidates(
        self, lines: Sequence[str], number: int = 1, *, tags: LanguageTags | None = None
    ) -> list[list[tuple[str, float]]]:
        """The best translations of each line with their scores; a line without text has an empty translation."""
        search, longest = self._search, self._longest
        options = ctranslate2_options(search, longest)
        by_limit: dict[int, list[int]] = defaultdict(list)  # a call has one limit, which depends on the source
        encoded = encode_source(self._tokenizer, lines, tags)
        sources = [[self._pieces[i] for i in ids[: longest - 1]] for ids in encoded]
        for row, source in enumerate(sources):
            if source:
                limit = int((len(source) + 1) * search.max_length_ratio) + search.max_length_extra
                by_limit[max(1, min(limit, longest))].append(row)
        translations: list[list[tuple[str, float]]] = [[("", 0.0)] for _ in lines]
        for limit, rows in by_limit.items():
            results = self._translator.translate_batch(
                [sources[row] for row in rows],
                target_prefix=None if tags is None else [self._tokenizer.target_pieces([tags.target])] * len(rows),
                max_decoding_length=max(1, limit - 1),  # without EOS
                max_batch_size=_BATCH,
                num_hypotheses=number,
                return_scores=True,
                **options,
            )
            for row, result in zip(rows, results, strict=True):
                ids = [[self._ids_of[piece] for piece in pieces] for pieces in result.hypotheses]
                translations[row] = list(zip(self._tokenizer.decode_target(ids), result.scores, strict=True))
        return translations


def _save(ctranslate2: Any, trained: TrainedModel, folder: Path, quantization: str | None) -> None:
    spec = build_spec(ctranslate2, trained.config, trained.tokenizer, plain_weights(trained.model))
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def _load(ctranslate2: Any, folder: Path, compute_type: str = "float32", workers: int = 1) -> Any:
    return ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, inter_threads=workers, intra_threads=_THREADS
    )


def _bleu(trained: TrainedModel, text: Text | None, translators: Mapping[str, Any]) -> str:
    """What quantisation does to BLEU, if text is at hand.

    Args:
        trained: the model.
        text: sentences with references.
        translators: float32 and the quantised one, by their names.
    """
    if text is None:
        return "BLEU: no --source and --reference, no validation set at hand"
    config = trained.config
    try:
        scored = ScoredText(target_language=config.prepare.target_language, tokenizer=config.evaluation.tokenizer)
        scorer = Scorer([make("metric", "bleu")], scored)
    except UserError as error:  # the export is good without it
        return f"BLEU: {error}"
    tags = own_language_tags(config.prepare, trained.tokenizer)
    scores = []
    for name, translator in translators.items():
        exported = Exported(
            translator, trained.tokenizer, config.evaluation.search, max_positions=trained.model.max_positions
        )
        lines = [translations[0][0] for translations in exported.candidates(text.sources, tags=tags)]
        scores.append((name, scorer.score(text.sources, lines, [text.references])["bleu"].value))
    shown = ", ".join(f"{score:.2f} in {name}" for name, score in scores)
    change = f"{shown} ({scores[1][1] - scores[0][1]:+.2f})"
    return f"BLEU of {len(text.sources)} sentences: {change}; {scorer.signatures['bleu']}"


def _fill_stack(
    ctranslate2: Any, spec: Any, embeddings: Any, stack: str, embedding: str, section: ModelSection, weights: Weights
) -> None:
    """Encoder or decoder."""
    spec.scale_embeddings = section.scale_embeddings
    embeddings.weight = weights[f"{embedding}.tokens.weight"].contiguous()
    if (table := weights.get(f"{embedding}.positions")) is not None:
        spec.position_encodings.encodings = table.contiguous()
    if section.has_final_norm:
        _norm(spec.layer_norm, f"{stack}.norm", weights)
    is_gated = _options(section)["ffn_glu"]
    for number, layer in enumerate(spec.layer):
        prefix = f"{stack}.layers.{number}"
        _attention(ctranslate2, layer.self_attention, f"{prefix}.self_attention", weights, is_self=True)
        if stack == "decoder":
            _attention(ctranslate2, layer.attention, f"{prefix}.cross_attention", weights, is_self=False)
        _norm(layer.ffn.layer_norm, f"{prefix}.feed_forward_residual.norm", weights)
        first = "gate" if is_gated else "inner"
        _linear(layer.ffn.linear_0, weights, f"{prefix}.feed_forward.{first}")
        if is_gated:
            _linear(layer.ffn.linear_0_noact, weights, f"{prefix}.feed_forward.inner")
        _linear(layer.ffn.linear_1, weights, f"{prefix}.feed_forward.outer")


def _attention(ctranslate2: Any, spec: Any, name: str, weights: Weights, *, is_self: bool) -> None:
    """Self-attention: queries, keys and values in one matmul; cross-attention: queries in one of their own."""
    _norm(spec.layer_norm, f"{name}_residual.norm", weights)
    parts = [f"{name}.query", f"{name}.key", f"{name}.value"]
    if is_self:
        _linear(spec.linear[0], weights, *parts)
    else:
        _linear(spec.linear[0], weights, parts[0])
        _linear(spec.linear[1], weights, *parts[1:])
    _linear(spec.linear[-1], weights, f"{name}.output")


def _linear(spec: Any, weights: Weights, *names: str) -> None:
    spec.weight = torch.cat([weights[f"{name}.weight"] for name in names]).contiguous()
    spec.bias = torch.cat([weights[f"{name}.bias"] for name in names]).contiguous()


def _norm(spec: Any, name: str, weights: Weights) -> None:
    spec.gamma = weights[f"{name}.weight"]
    if f"{name}.bias" in weights:
        spec.beta = weights[f"{name}.bias"]
