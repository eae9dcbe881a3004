"""Segmentations are drawn as the papers say, against plain implementations of them and SentencePiece's n-best list."""

import gzip
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import sentencepiece
import torch
from numpy.typing import NDArray

from data_pipeline.stream.augmentation.bpe import BpeSegmenter
from data_pipeline.stream.augmentation.unigram import UnigramSegmenter
from data_pipeline.stream.augmentation.variants import Segmenter, Variants
from data_pipeline.stream.augmentation.vocabulary import Vocabulary
from data_pipeline.stream.batch import Ragged
from data_pipeline.tokenizer import Tokenizer
from tests.conftest import BUNDLED
from tests.data_pipeline.stream.augmentation.plain import bpe_dropout, segmentations

NUM_WORDS = 1000
Made = tuple[Tokenizer, Vocabulary, list[str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A tokenizer of a kind with 1,000 pieces, its vocabulary, and the 1,000 commonest words of its corpus."""

    def train(kind: str) -> Made:
        lines = gzip.decompress((BUNDLED / "valid.en.gz").read_bytes()).decode().splitlines()
        place = tmp_path_factory.mktemp(kind) / "model"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(place), model_type=kind, vocab_size=1000, pad_id=0,
            bos_id=1, eos_id=2, unk_id=3, minloglevel=2, num_threads=1, hard_vocab_limit=False, character_coverage=1.0,
        )  # fmt: skip
        tokenizer = Tokenizer({"tokenizer.model": place.with_suffix(".model").read_bytes()})
        counts = Counter(word for line in lines for word in line.split() if word.isalpha() and word.isascii())
        words = [word for word, _ in counts.most_common(NUM_WORDS)]
        assert len(words) == NUM_WORDS
        return tokenizer, Vocabulary(tokenizer, 0), words

    return train


def _drawn(segmenter: Segmenter, vocabulary: Vocabulary, word: str, count: int, seed: int = 1) -> list[tuple[str, ...]]:
    """Segmentations of a word, by as many keys."""
    letters = np.array([[vocabulary.ids[letter] for letter in f"▁{word}"]] * count)
    keys = np.random.Philox(np.random.SeedSequence([seed, *word.encode()])).random_raw(count)
    with np.errstate(over="ignore"):
        rows = segmenter(letters, keys)
    return [tuple(vocabulary.pieces[i] for i in rows[n]) for n in range(count)]


def _chance_of_more(chi_squared: float, dof: int) -> float:
    """The p-value: the regularised upper incomplete gamma function."""
    half = [torch.tensor(x / 2, dtype=torch.float64) for x in (dof, chi_squared)]
    return float(torch.special.gammaincc(*half))


def _compared(ours: Counter[tuple[str, ...]], theirs: Counter[tuple[str, ...]]) -> tuple[float, int]:
    """Chi-squared of two samples and its degrees of freedom; rare segmentations together."""
    common = [key for key, n in (ours + theirs).items() if n >= 10]
    table = np.array([[sample[key] for key in common] for sample in (ours, theirs)])
    rest = [sample.total() - row.sum() for sample, row in zip((ours, theirs), table, strict=True)]
    table = np.column_stack([table, rest]) if min(rest) >= 5 else table
    if table.shape[1] < 2:
        return 0.0, 0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    return float(((table - expected) ** 2 / expected).sum()), table.shape[1] - 1


def _merges(vocabulary: Vocabulary) -> dict[tuple[str, str], int]:
    rank = {p: n for n, p in enumerate(sorted(vocabulary.ids, key=lambda p: -vocabulary.scores[vocabulary.ids[p]]))}
    return {(p[:n], p[n:]): rank[p] for p in vocabulary.ids for n in range(1, len(p)) if {p[:n], p[n:]} <= rank.keys()}


def test_bpe_dropout_agrees_with_a_plain_implementation(trained: Callable[[str], Made]) -> None:
    """1,000 words at p = 0.1, 100 draws each: the words' chi-squared added up, and a wrong p is found out by it."""
    _, vocabulary, words = trained("bpe")
    merges, random = _merges(vocabulary), np.random.default_rng(5)
    theirs = [Counter(tuple(bpe_dropout(f"▁{w}", merges, 0.1, random)) for _ in range(100)) for w in words]

    def compared(p: float) -> float:
        segmenter = BpeSegmenter(vocabulary, p)
        found = [
            _compared(Counter(_drawn(segmenter, vocabulary, w, 100)), t) for w, t in zip(words, theirs, strict=True)
        ]
        return _chance_of_more(sum(x for x, _ in found), sum(dof for _, dof in found))

    right, wrong = compared(0.1), compared(0.15)
    print(f"BPE-dropout, 1,000 words: p-value {right:.3f} at p = 0.1, {wrong:.1e} at p = 0.15")
    assert right > 0.001
    assert wrong < 1e-6


def test_without_dropout_they_are_sentencepieces_own(trained: Callable[[str], Made]) -> None:
    tokenizer, vocabulary, words = trained("bpe")
    nothing, everything = BpeSegmenter(vocabulary, 0.0), BpeSegmenter(vocabulary, 1.0)
    for word, row in zip(words, tokenizer.encode_source(words), strict=True):
        assert _drawn(nothing, vocabulary, word, 1) == [tuple(tokenizer.source_pieces(row))]
        assert _drawn(everything, vocabulary, word, 1) == [tuple(f"▁{word}")]


def test_unigram_sampling_has_the_probabilities_of_the_n_best_list(trained: Callable[[str], Made]) -> None:
    """Those of SentencePiece's 20 best, compared with all others, for 100 words; all of them by recursion for a few."""
    tokenizer, vocabulary, words = trained("unigram")
    alpha, count = 0.5, 1000
    segmenter = UnigramSegmenter(vocabulary, alpha)
    scores = {piece: float(vocabulary.scores[i]) for piece, i in vocabulary.ids.items()}
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.files()["tokenizer.model"])
    total, dof = 0.0, 0
    for word in words[::10]:
        drawn = Counter(_drawn(segmenter, vocabulary, word, count))
        every = segmentations(f"▁{word}", scores, alpha)
        assert drawn.keys() <= every.keys()
        best = theirs.nbest_encode(word, return_type="proto", nbest_size=20)
        listed = {tuple(p.piece for p in one.pieces): float(one.score) for one in best.nbests}
        weight = sum(np.exp(alpha * score) for score in listed.values())
        share = sum(every[pieces] for pieces in listed)
        expected = {pieces: float(np.exp(alpha * score) / weight * share) for pieces, score in listed.items()}
        assert expected == pytest.approx({pieces: every[pieces] for pieces in listed}, rel=1e-3)
        kept = {pieces: chance for pieces, chance in expected.items() if chance * count >= 5}
        chances = np.array([*kept.values(), 1 - sum(kept.values())])
        seen = np.array([*(drawn[pieces] for pieces in kept), count - sum(drawn[pieces] for pieces in kept)])
        if chances[-1] * count < 5:
            chances, seen = np.append(chances[:-2], chances[-2:].sum()), np.append(seen[:-2], seen[-2:].sum())
        total += float(((seen - chances * count) ** 2 / (chances * count)).sum())
        dof += len(chances) - 1
    p_value = _chance_of_more(total, dof)
    print(f"unigram sampling, {len(words[::10])} words: chi-squared {total:.0f} of {dof}, p-value {p_value:.3f}")
    assert p_value > 0.001


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_words_of_rows_are_cut_with_their_text_kept(kind: str, trained: Callable[[str], Made]) -> None:
    """Whatever rows there are: empty ones, unknown pieces, one after the other or each alone, remembered or not."""
    tokenizer, vocabulary, words = trained(kind)
    make = BpeSegmenter(vocabulary, 0.3) if kind == "bpe" else UnigramSegmenter(vocabulary, 0.2)
    lines = [" ".join(words[n : n + 7]) for n in range(0, 70, 7)] + ["", "a 龍 dragon 龍龍", "龍", words[0], "ab" * 400]
    rows = tokenizer.encode_source(lines)
    keys: NDArray[np.uint64] = np.random.Philox(3).random_raw(len(rows))
    variants = Variants(vocabulary, make, np.uint64(9))
    with np.errstate(over="ignore"):
        cut = variants.recut(Ragged.of(rows), keys)
        again = variants.recut(Ragged.of(rows), keys)
        alone = [
            Variants(vocabulary, make, np.uint64(9)).recut(Ragged.of([r]), keys[n : n + 1]) for n, r in enumerate(rows)
        ]
    assert [cut[n].tolist() for n in range(len(rows))] == [again[n].tolist() for n in range(len(rows))]
    assert [cut[n].tolist() for n in range(len(rows))] == [one[0].tolist() for one in alone]
    assert tokenizer.decode_source([cut[n].tolist() for n in range(len(rows))]) == tokenizer.decode_source(rows)
    assert sum(cut[n].tolist() != row for n, row in enumerate(rows)) > 5
    assert cut[10].tolist() == []
    assert cut[14].tolist() == rows[14], "a word of 800 letters stays plain"
