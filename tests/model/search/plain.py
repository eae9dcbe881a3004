"""What search is held against: sentences as lists, decoded in full, without cache, batch or early end."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from configs import SearchSection
from configs.components import make
from model import Transformer
from model.search import Hypothesis
from tests.model.reference import BOS, EOS, logits_of, pad, tiny_model, tiny_section

SCORE = 1e-5
SOURCES = [[3, 4, 5, EOS], [6, EOS], [4, 4, 3, 6, 5, EOS], [5, 3, EOS]]

ScoredIds = tuple[list[int], float]


def peaked_model(seed: int, *, vocab: int = 7, **changes: Any) -> Transformer:
    """A model whose next tokens are not all about as likely as each other, and that ends now and then."""
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    section = tiny_section(tied_embeddings="none", **{**sizes, **changes})
    model = tiny_model(section, source_vocab=7, target_vocab=vocab, seed=seed)
    with torch.no_grad():
        model.output.weight.mul_(2)
    return model


def wants_to_end(model: Transformer, strength: float) -> Transformer:
    """One element of every hidden state is large, and only EOS heeds it: never below 0, always above."""
    with torch.no_grad():
        model.get_parameter("decoder.norm.weight")[0] = 0.0
        model.get_parameter("decoder.norm.bias")[0] = 20.0
        model.output.weight[:, 0] = 0.0
        model.output.weight[EOS, 0] = strength
    return model


def section_of(**changes: Any) -> SearchSection:
    """Goes on until no open hypothesis can win, unless told otherwise; with `sample`, draws from all pieces."""
    if changes.pop("sample", False):
        changes["sampler"] = make("sampler", "truncated")
    beam = 4 if changes.get("sampler") is None else 1
    return SearchSection(**{"beam": beam, "patience": 0.0, "max_length_ratio": 1.0, "max_length_extra": 3, **changes})


def next_log_probs(models: Transformer | Sequence[Transformer], source: list[int], prefixes: list[list[int]]) -> Tensor:
    """Of the token after each prefix (all of one length), in fp64, by a decode from the start.

    Several models: the logarithm of the mean of their probabilities.
    """
    target = torch.tensor([[BOS, *prefix] for prefix in prefixes])
    each = [models] if isinstance(models, Transformer) else models
    with torch.no_grad():
        logits = [logits_of(m, pad([source] * len(prefixes)), target)[:, -1] for m in each]
    probabilities = [F.softmax(one.double(), dim=-1) for one in logits]
    return torch.stack(probabilities).mean(0).log()


def plain_penalty(length: int, alpha: float, kind: str = "gnmt") -> float:
    return math.pow(length, alpha) if kind == "mean" else math.pow((5 + length) / 6, alpha)


@dataclass(kw_only=True)
class Rules:
    """What a sentence may look like."""

    vocab: int
    limit: int
    shortest: int = 0
    ngram: int = 0
    prefix: list[int] = field(default_factory=list)

    def allowed(self, ids: list[int]) -> list[int]:
        """The tokens that may follow."""
        step, n = len(ids) + 1, self.ngram
        if step <= len(self.prefix):
            return [self.prefix[step - 1]]
        if step >= self.limit:
            return [EOS]
        grams = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)} if n else set()
        last = ids[len(ids) - n + 1 :] if n else []
        tokens = [t for t in range(EOS + 1, self.vocab) if (*last, t) not in grams]
        return tokens if tokens and step < self.shortest else [EOS, *tokens]

    def allow(self, ids: list[int]) -> bool:
        """Whether a whole translation is allowed."""
        return all(token in self.allowed(ids[:i]) for i, token in enumerate([*ids, EOS]))


def plain_beam(
    models: Transformer | Sequence[Transformer],
    source: list[int],
    rules: Rules,
    *,
    beam: int,
    alpha: float,
    kind: str = "gnmt",
    n_best: int = 1,
    patience: float = math.inf,
) -> list[ScoredIds]:
    """Beam search as a list of sentences: no cache, no batch, no end before `patience` times the beam have ended."""
    open_: list[ScoredIds] = [([], 0.0)]
    finished: list[ScoredIds] = []
    for step in range(1, rules.limit + 1):
        if not open_ or len(finished) >= max(n_best, patience * beam):
            break
        log_p = next_log_probs(models, source, [ids for ids, _ in open_]).tolist()
        candidates = [
            ([*ids, token], total + log_p[i][token])
            for i, (ids, total) in enumerate(open_)
            for token in rules.allowed(ids)
        ]
        candidates.sort(key=lambda c: -c[1])
        finished += [
            (ids[:-1], total / plain_penalty(step, alpha, kind)) for ids, total in candidates[:beam] if ids[-1] == EOS
        ]
        open_ = [c for c in candidates if c[0][-1] != EOS][:beam]
    return sorted(finished, key=lambda c: -c[1])[:n_best]


def all_sequences(
    model: Transformer, source: list[int], rules: Rules, *, alpha: float, kind: str = "gnmt"
) -> list[ScoredIds]:
    """Every sequence that is allowed, best first."""
    scored: list[ScoredIds] = []
    for length in range(rules.limit):
        sequences = [list(s) for s in itertools.product(range(EOS + 1, rules.vocab), repeat=length)]
        if not (sequences := [s for s in sequences if rules.allow(s)]):
            continue
        with torch.no_grad():
            target = torch.tensor([[BOS, *s] for s in sequences])
            logits = logits_of(model, pad([source] * len(sequences)), target)
        log_p = F.log_softmax(logits.double(), dim=-1)
        outputs = torch.tensor([[*s, EOS] for s in sequences])
        totals = log_p.gather(2, outputs[..., None]).sum((1, 2)).tolist()
        scored += [(s, t / plain_penalty(length + 1, alpha, kind)) for s, t in zip(sequences, totals, strict=True)]
    return sorted(scored, key=lambda c: -c[1])


def assert_same(hypotheses: list[Hypothesis], expected: list[ScoredIds]) -> None:
    """The same sequences in the same order; those whose scores tie may trade places."""
    assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], abs=SCORE)
    scores = {tuple(ids): score for ids, score in expected}
    for place, h in enumerate(hypotheses):
        other = scores.get(tuple(h.ids), expected[-1][1])  # beyond the last place, in a tie with it
        assert other == pytest.approx(h.score, abs=SCORE), place


@st.composite
def constraints(draw: st.DrawFn, vocab: int) -> tuple[dict[str, Any], list[list[int]] | None]:
    """Fields of the search section, and a prefix for each source or none at all."""
    fields = {
        "no_repeat_ngram": draw(st.integers(0, 3)),
        "min_length_ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "min_length_extra": draw(st.integers(0, 2)),
    }
    tokens = st.lists(st.integers(EOS + 1, vocab - 1), max_size=3)
    return fields, draw(st.none() | st.lists(tokens, min_size=len(SOURCES), max_size=len(SOURCES)))


def rules_of(source: list[int], vocab: int, fields: dict[str, Any], prefix: list[int], *, limit: int) -> Rules:
    limit = max(limit, len(prefix) + 1)
    shortest = int(len(source) * fields["min_length_ratio"]) + fields["min_length_extra"]
    return Rules(
        vocab=vocab, limit=limit, shortest=min(shortest, limit), ngram=fields["no_repeat_ngram"], prefix=prefix
    )
