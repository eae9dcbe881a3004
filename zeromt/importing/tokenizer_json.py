"""Converts `tokenizer.json`, as current Transformers writes it, to a SentencePiece model.

NLLB's is a BPE. SentencePiece stores a BPE as pieces with scores: the higher the score of a piece, the earlier the
merge that makes it. The scores of unigram models (Kudo, 2018) are used as they are. The normaliser is SentencePiece's
own table. Anything else in the file, such as another way to split text into words, has no counterpart and is refused by
name.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from configs import UserError

PIECES = "model"
"""The part of the file that holds the pieces; files with added pieces alone have none."""
_WHERE = "--huggingface: tokenizer.json"
_TYPES = {"BPE": 2, "Unigram": 1}
"""SentencePiece's numbers for the types of models."""
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece
_SPACES = " {2,}"


def names_of(tree: Mapping[str, Any]) -> dict[int, str]:
    """Pieces by id, without added ones.

    Raises:
        UserError: it is of another kind.
    """
    model = tree[PIECES]
    if model.get("type") not in _TYPES:
        raise UserError(f"{_WHERE}: model {model.get('type')!r}; allowed is {', '.join(_TYPES)}")
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        return {int(i): str(piece) for piece, i in vocabulary.items()}
    return {i: str(piece) for i, (piece, _) in enumerate(vocabulary)}


def model_of(tree: Mapping[str, Any]) -> bytes:
    """A SentencePiece model that splits text as the file says.

    Raises:
        UserError: SentencePiece cannot do that.
    """
    if problems := list(_problems(tree)):
        raise UserError(f"{_WHERE}: {'; '.join(problems)}")
    names, model = names_of(tree), tree[PIECES]
    scores = _merge_scores(model) if model["type"] == "BPE" else {str(p): float(s) for p, s in model["vocab"]}
    proto = sentencepiece_model_pb2.ModelProto()
    for _, text in sorted(names.items()):
        piece = proto.pieces.add(piece=text, score=scores.get(text, 0.0), type=_PIECE.NORMAL)
        if text in _SPECIAL:
            piece.type = _PIECE.UNKNOWN if text == "<unk>" else _PIECE.CONTROL
        elif model.get("byte_fallback") and _is_byte(text):
            piece.type = _PIECE.BYTE
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type = _TYPES[model["type"]]
    trainer.vocab_size = len(names)
    trainer.byte_fallback = bool(model.get("byte_fallback"))
    normalizer.name = "user_defined"
    normalizer.precompiled_charsmap = _charsmap(tree)
    normalizer.add_dummy_prefix = normalizer.escape_whitespaces = True
    steps = [*_steps(tree.get("normalizer")), *_steps(tree.get("pre_tokenizer"))]
    normalizer.remove_extra_whitespaces = any(step["type"] in ("Replace", "WhitespaceSplit") for step in steps)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _merge_scores(model: Mapping[str, Any]) -> dict[str, float]:
    """A score for every piece that a merge makes: the later its first merge, the lower. Other pieces get the lowest.

    Raises:
        UserError: no order of pieces gives these merges.
    """
    scores: dict[str, float] = {}
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        scores.setdefault(left + right, -float(len(scores)))
    last = -float(len(scores))
    return {str(piece): scores.get(piece, last) for piece in model["vocab"]}


def _problems(tree: Mapping[str, Any]) -> Iterator[str]:
    """What SentencePiece cannot do, one line each."""
    model = tree[PIECES]
    if model.get("type") not in _TYPES:
        yield f"model {model.get('type')!r}; allowed is {', '.join(_TYPES)}"
        return
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            yield f"{name} {model[name]!r}; allowed is none"
    names = set(names_of(tree).values())
    if lacking := [piece for piece in _SPECIAL if piece not in names]:
        yield f"no piece {lacking[0]!r}; allowed is a vocabulary with {', '.join(_SPECIAL)}"
    if model["type"] == "BPE" and (strange := _strange_merge(model)):
        yield strange
    for part, allowed in (("normalizer", _NORMALIZERS), ("pre_tokenizer", _PRE_TOKENIZERS)):
        for step in _steps(tree.get(part)):
            if not any(all(step.get(k) == v for k, v in one.items()) for one in allowed):
                shown = {k: v for k, v in step.items() if k != "precompiled_charsmap"}
                yield f"{part} {shown!r}, which SentencePiece does not have"
    if not any(step.get("type") == "Metaspace" for step in _steps(tree.get("pre_tokenizer"))):
        yield "no pre_tokenizer Metaspace; allowed is SentencePiece's way to mark words"


_NORMALIZERS: Sequence[Mapping[str, Any]] = (
    {"type": "Precompiled"},
    {"type": "Replace", "pattern": {"Regex": _SPACES}},
    {"type": "Strip"},
)
_PRE_TOKENIZERS: Sequence[Mapping[str, Any]] = (
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
    {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
    {"type": "WhitespaceSplit"},
)


def _strange_merge(model: Mapping[str, Any]) -> str | None:
    """The first sign that the merges are not those that SentencePiece would make with the same pieces.

    SentencePiece merges any two neighbours that make a piece, in the order of the pieces.
    """
    made: dict[str, set[str]] = {}
    before = None
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        piece = left + right
        if piece != before and piece in made:
            return f"the merges to {piece!r} do not follow one another, as SentencePiece's do"
        made.setdefault(piece, set()).add(left)
        before = piece
    vocabulary = model["vocab"]
    for piece in vocabulary:
        if piece in _SPECIAL:
            continue
        splits = {piece[:i] for i in range(1, len(piece)) if piece[:i] in vocabulary and piece[i:] in vocabulary}
        if lacking := splits - made.get(piece, set()):
            left = min(lacking)
            return f"no merge of {left!r} and {piece[len(left) :]!r}, which SentencePiece would make"
    return None


def _charsmap(tree: Mapping[str, Any]) -> bytes:
    charsmaps = [s["precompiled_charsmap"] for s in _steps(tree.get("normalizer")) if s.get("type") == "Precompiled"]
    return base64.b64decode(charsmaps[0]) if charsmaps and charsmaps[0] else b""


def _steps(part: Any) -> list[Mapping[str, Any]]:
    """The steps of a normaliser or of a pre-tokeniser, in order."""
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for each in (part.get("normalizers") or part.get("pretokenizers") or []) for step in _steps(each)]
    return [part]


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")
