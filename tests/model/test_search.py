"""Search against plain searches that decode in full, and against all sequences there are."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from configs import SearchSection
from model import Hypothesis, Transformer, search
from model.search import length_penalty, max_length
from tests.model.reference import BOS, EOS, PAD, logits_of, pad, tiny_model, tiny_section

SCORE = 1e-5
SOURCES = [[3, 4, 5, EOS], [6, EOS], [4, 4, 3, 6, 5, EOS], [5, 3, EOS]]

Found = tuple[list[int], float]


def peaked_model(seed: int, *, vocab: int = 7, **changes: Any) -> Transformer:
    """A model whose next tokens are not all about as likely as each other, and that ends now and then."""
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    section = tiny_section(tied_embeddings="none", **{**sizes, **changes})
    model = tiny_model(section, source_vocab=7, target_vocab=vocab, seed=seed)
    with torch.no_grad():
        model.output.weight.mul_(2)
    return model


def wants_to_end(model: Transformer, strength: float) -> Transformer:
    """One element of every hidden state is large, and only the end mark heeds it: never below 0, always above."""
    with torch.no_grad():
        model.get_parameter("decoder.norm.weight")[0] = 0.0
        model.get_parameter("decoder.norm.bias")[0] = 20.0
        model.output.weight[:, 0] = 0.0
        model.output.weight[EOS, 0] = strength
    return model


def section_of(**changes: Any) -> SearchSection:
    return SearchSection(**{"beam": 4, "max_length_ratio": 1.0, "max_length_extra": 3, **changes})


def next_log_probs(model: Transformer, source: list[int], prefixes: list[list[int]]) -> Tensor:
    """Of the token after each prefix (all of one length), in fp64, by a decode from the start."""
    target = torch.tensor([[BOS, *prefix] for prefix in prefixes])
    with torch.no_grad():
        logits = logits_of(model, pad([source] * len(prefixes)), target)[:, -1]
    return F.log_softmax(logits.double(), dim=-1)


def plain_penalty(length: int, alpha: float) -> float:
    return math.pow((5 + length) / 6, alpha)


def plain_beam(
    model: Transformer, source: list[int], *, beam: int, limit: int, alpha: float, n_best: int = 1
) -> list[Found]:
    """Beam search as a list of sentences: no cache, no batch, no early end."""
    open_: list[Found] = [([], 0.0)]
    finished: list[Found] = []
    for step in range(1, limit + 1):
        log_p = next_log_probs(model, source, [ids for ids, _ in open_]).tolist()
        candidates = [
            ([*ids, token], total + log_p[i][token])
            for i, (ids, total) in enumerate(open_)
            for token in range(len(log_p[i]))
            if token not in (PAD, BOS) and (token == EOS or step < limit)
        ]
        candidates.sort(key=lambda c: -c[1])
        finished += [
            (ids[:-1], total / plain_penalty(step, alpha)) for ids, total in candidates[:beam] if ids[-1] == EOS
        ]
        open_ = [c for c in candidates if c[0][-1] != EOS][:beam]
    return sorted(finished, key=lambda c: -c[1])[:n_best]


def all_sequences(model: Transformer, source: list[int], *, vocab: int, limit: int, alpha: float) -> list[Found]:
    """Every sequence of at most `limit` tokens with its end, best first."""
    found: list[Found] = []
    for length in range(limit):
        sequences = [list(s) for s in itertools.product(range(EOS + 1, vocab), repeat=length)]
        with torch.no_grad():
            target = torch.tensor([[BOS, *s] for s in sequences])
            logits = logits_of(model, pad([source] * len(sequences)), target)
        log_p = F.log_softmax(logits.double(), dim=-1)
        outputs = torch.tensor([[*s, EOS] for s in sequences])
        totals = log_p.gather(2, outputs[..., None]).sum((1, 2)).tolist()
        found += [(s, t / plain_penalty(length + 1, alpha)) for s, t in zip(sequences, totals, strict=True)]
    return sorted(found, key=lambda c: -c[1])


def assert_same(found: list[Hypothesis], expected: list[Found]) -> None:
    """The same sequences in the same order; those whose scores tie may trade places."""
    assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=SCORE)
    scores = {tuple(ids): score for ids, score in expected}
    for place, h in enumerate(found):
        other = scores.get(tuple(h.ids))
        if other is None:  # beyond the last place, in a tie with it
            assert h.score == pytest.approx(expected[-1][1], abs=SCORE)
        else:
            assert other == pytest.approx(h.score, abs=SCORE), place


class TestAgainstPlainSearch:
    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 10_000),
        sizes=st.sampled_from([(4, 7), (5, 6), (6, 5), (7, 4)]),
        alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
        n_best=st.integers(1, 20),
    )
    def test_a_wide_beam_finds_the_best_of_all(
        self, seed: int, sizes: tuple[int, int], alpha: float, n_best: int
    ) -> None:
        """(vocabulary, limit) are such that 128 hold all open and ending hypotheses of a step."""
        vocab, limit = sizes
        model = peaked_model(seed, vocab=vocab)
        section = section_of(beam=128, length_penalty=alpha, max_length_ratio=1e-9, max_length_extra=limit)
        found = search(model, pad(SOURCES), section, n_best=n_best)
        for hypotheses, source in zip(found, SOURCES, strict=True):
            everything = all_sequences(model, source, vocab=vocab, limit=limit, alpha=alpha)
            assert len(hypotheses) == min(n_best, len(everything))
            assert_same(hypotheses, everything[:n_best])

    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 10_000),
        beam=st.integers(2, 9),
        alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
        vocab=st.integers(4, 9),
        data=st.data(),
    )
    def test_any_beam_finds_what_the_plain_one_finds(
        self, seed: int, beam: int, alpha: float, vocab: int, data: st.DataObject
    ) -> None:
        n_best = data.draw(st.integers(1, beam))
        model = peaked_model(seed, vocab=vocab)
        section = section_of(beam=beam, length_penalty=alpha)
        found = search(model, pad(SOURCES), section, n_best=n_best)
        for hypotheses, source in zip(found, SOURCES, strict=True):
            limit = len(source) + 3
            expected = plain_beam(model, source, beam=beam, limit=limit, alpha=alpha, n_best=n_best)
            assert_same(hypotheses, expected)

    @pytest.mark.parametrize("seed", range(8))
    def test_greedy_is_the_argmax_of_a_full_decode(self, seed: int) -> None:
        model = peaked_model(seed, vocab=9)
        found = search(model, pad(SOURCES), section_of(beam=1, length_penalty=0.7))
        for (hypothesis,), source in zip(found, SOURCES, strict=True):
            ids: list[int] = []
            total, limit = 0.0, len(source) + 3
            while not ids or ids[-1] != EOS:
                log_p = next_log_probs(model, source, [ids])[0]
                log_p[[PAD, BOS]] = -math.inf
                ids.append(EOS if len(ids) + 1 == limit else int(log_p.argmax()))
                total += log_p[ids[-1]].item()
            assert hypothesis.ids == ids[:-1]
            assert hypothesis.score == pytest.approx(total / plain_penalty(len(ids), 0.7), abs=SCORE)

    @pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
    @pytest.mark.parametrize("norm_position", ["pre", "post"])
    def test_steps_with_a_cache_are_a_full_decode(self, positions: str, norm_position: str) -> None:
        model = peaked_model(3, positions=positions, norm_position=norm_position, decoder_layers=2)
        target = torch.tensor([[BOS, 3, 4, 4, 5], [BOS, 6, 6, 3, 2], [BOS, 2, 3, 5, 4], [BOS, 4, 3, 6, 5]])
        with torch.no_grad():
            full = F.log_softmax(logits_of(model, pad(SOURCES), target), dim=-1)
            state = model.start(pad(SOURCES))
            for position in range(target.shape[1]):
                step = model.step(target[:, position], state)
                torch.testing.assert_close(step, full[:, position], rtol=0, atol=1e-5)

    def test_rows_of_a_state_can_be_chosen_before_the_first_step(self) -> None:
        model, rows = peaked_model(4), torch.tensor([2, 2, 1])
        with torch.no_grad():
            state = model.start(pad(SOURCES))
            state.select(rows, rows)
            chosen = model.step(torch.full((3,), BOS), state)
            all_ = model.step(torch.full((4,), BOS), model.start(pad(SOURCES)))
        torch.testing.assert_close(chosen, all_[rows], rtol=0, atol=1e-5)

    def test_rows_of_a_state_can_trade_places(self) -> None:
        model = peaked_model(4)
        rows = torch.tensor([2, 0, 0, 3])
        with torch.no_grad():
            state = model.start(pad(SOURCES))
            model.step(torch.full((4,), BOS), state)
            model.step(torch.tensor([3, 4, 5, 6]), state)
            state.select(rows, rows)
            moved = model.step(torch.tensor([3, 3, 4, 4]), state)
            target = torch.tensor([[BOS, 5, 3], [BOS, 3, 3], [BOS, 3, 4], [BOS, 6, 4]])
            full = F.log_softmax(logits_of(model, pad(SOURCES)[rows], target)[:, -1], dim=-1)
        torch.testing.assert_close(moved, full, rtol=0, atol=1e-5)


class TestProperties:
    @pytest.mark.parametrize("beam", [1, 5])
    @pytest.mark.parametrize("seed", range(4))
    def test_a_translation_does_not_depend_on_its_batch(self, beam: int, seed: int) -> None:
        model, section = peaked_model(seed, vocab=9), section_of(beam=beam)
        together = search(model, pad(SOURCES, width=9), section, n_best=beam)
        backwards = search(model, pad(SOURCES[::-1]), section, n_best=beam)[::-1]
        alone = [search(model, pad([source]), section, n_best=beam)[0] for source in SOURCES]
        for one, other, third in zip(together, backwards, alone, strict=True):
            assert_same(other, [(h.ids, h.score) for h in one])
            assert_same(third, [(h.ids, h.score) for h in one])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("beam", [1, 2, 6, 30])
    def test_what_every_translation_has(self, beam: int, dtype: torch.dtype) -> None:
        for seed in range(4):
            model = peaked_model(seed, vocab=8).to(dtype)
            section = section_of(beam=beam, max_length_ratio=0.5, max_length_extra=2)
            for source, hypotheses in zip(SOURCES, search(model, pad(SOURCES), section, n_best=beam), strict=True):
                limit = int(len(source) * 0.5) + 2
                assert 1 <= len(hypotheses) <= beam
                assert all(len(h.ids) + 1 <= limit for h in hypotheses)
                assert all(EOS < token < 8 for h in hypotheses for token in h.ids)
                assert all(-1e6 < h.score < 0 for h in hypotheses)
                assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
                assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)

    @pytest.mark.parametrize("beam", [1, 3])
    @pytest.mark.parametrize("extra", [0, 1])
    def test_the_shortest_limit_leaves_the_end_mark(self, beam: int, extra: int) -> None:
        """A limit of nothing counts as one of one token."""
        model = peaked_model(2)
        section = section_of(beam=beam, max_length_ratio=1e-9, max_length_extra=extra, length_penalty=1.0)
        found = search(model, pad(SOURCES), section, n_best=beam)
        for source, hypotheses in zip(SOURCES, found, strict=True):
            (only,) = hypotheses
            assert only.ids == []
            assert only.score == pytest.approx(next_log_probs(model, source, [[]])[0, EOS].item(), abs=SCORE)

    @pytest.mark.parametrize("beam", [1, 3])
    def test_no_translation_is_longer_than_the_positions(self, beam: int) -> None:
        model = wants_to_end(peaked_model(5, max_positions=6), -5.0)
        found = search(model, pad(SOURCES), section_of(beam=beam, max_length_extra=50))
        assert [len(h[0].ids) + 1 for h in found] == [6] * 4

    def test_a_batch_that_ends_at_once(self) -> None:
        model = wants_to_end(peaked_model(5), 5.0)
        for beam in (1, 3):
            found = search(model, pad(SOURCES), section_of(beam=beam))
            assert [h[0].ids for h in found] == [[]] * 4

    @pytest.mark.parametrize("beam", [1, 3])
    def test_no_sentences(self, beam: int) -> None:
        assert search(peaked_model(1), torch.zeros((0, 4), dtype=torch.long), section_of(beam=beam)) == []

    @pytest.mark.parametrize("beam", [1, 3])
    def test_a_model_of_nan_ends_too(self, beam: int) -> None:
        model = peaked_model(1)
        with torch.no_grad():
            model.output.weight.fill_(math.nan)
        for (only,) in search(model, pad(SOURCES), section_of(beam=beam), n_best=beam):
            assert only.ids == []
            assert math.isnan(only.score)

    @pytest.mark.parametrize("seed", range(6))
    def test_an_early_end_loses_nothing(self, seed: int) -> None:
        """The best of one is the best of many, for which search goes on longer."""
        model = peaked_model(seed, vocab=9)
        for alpha in (0.0, 1.0, 4.0):
            section = section_of(beam=5, length_penalty=alpha, max_length_extra=7)
            few = search(model, pad(SOURCES), section, n_best=1)
            many = search(model, pad(SOURCES), section, n_best=5)
            assert [h[0].score for h in few] == pytest.approx([h[0].score for h in many], abs=SCORE)

    def test_it_ends_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = wants_to_end(peaked_model(5), 5.0)
        state = model.start(pad(SOURCES))
        monkeypatch.setattr(model, "start", lambda _: state)
        search(model, pad(SOURCES), section_of(beam=3, max_length_extra=7))
        assert state.position == 1


class TestArguments:
    @pytest.mark.parametrize("n_best", [0, 5])
    def test_n_best_beyond_the_beam(self, n_best: int) -> None:
        with pytest.raises(ValueError, match=rf"n_best: {n_best} is not allowed with beam=4; allowed is 1 to the beam"):
            search(peaked_model(1), pad(SOURCES), section_of(beam=4), n_best=n_best)

    def test_a_source_beyond_the_positions(self) -> None:
        model = peaked_model(1, max_positions=5)
        with pytest.raises(ValueError, match="source: 6 tokens; allowed is at most max_positions=5"):
            search(model, pad(SOURCES), section_of())

    def test_a_model_that_trains(self) -> None:
        with pytest.raises(AssertionError, match="evaluation mode"):
            search(peaked_model(1).train(), pad(SOURCES), section_of())

    @pytest.mark.parametrize(
        ("length", "ratio", "extra", "limit"), [(5, 1.5, 2, 9), (5, 0.1, 0, 1), (5, 2.0, 20, 16), (7, 1.0, 0, 7)]
    )
    def test_limit(self, length: int, ratio: float, extra: int, limit: int) -> None:
        section = replace(section_of(), max_length_ratio=ratio, max_length_extra=extra)
        assert max_length(length, section, peaked_model(1)) == limit

    @pytest.mark.parametrize(
        ("length", "alpha", "penalty"), [(1, 0.6, 1.0), (7, 0.0, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0)]
    )
    def test_length_penalty(self, length: int, alpha: float, penalty: float) -> None:
        assert length_penalty(length, alpha) == pytest.approx(penalty)
