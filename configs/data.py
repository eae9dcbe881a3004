"""The sections about data: what is prepared, and how it is streamed. See `configs.schema` for the rules of all."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from configs.components import Choice, Filter, Modifier, Schedule
from configs.components.modifier import order_problems
from configs.fields import STRICT, Count, Language, Name, NonNegativeFloat, PathText, Positive, PositiveFloat
from configs.languages import same_language

Tag = Annotated[str, Field(pattern=r"^>>[^<>\s]{1,32}<<$")]
UNDETERMINED = "und"
"""The language of a run that was imported without languages (ISO 639-2)."""
FieldPath = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
"""A key, or several keys joined by dots."""
Script = Annotated[str, Field(pattern=r"^[A-Za-z_]{2,40}$")]


@dataclass(kw_only=True, slots=True, frozen=True)
class CorpusFiles:
    """Raw parallel text of one form: `source` and `target`, line N beside line N, or `tsv`, `jsonl` or `huggingface`.

    A name ending in .gz, .zst, .xz or .bz2 is decompressed. Several files are read one after the other.
    """

    __pydantic_config__ = STRICT

    source: list[PathText] = field(default_factory=list)
    """Files with one sentence per line."""
    target: list[PathText] = field(default_factory=list)
    """Files with the translations, line by line; as many files as `source` has."""
    tsv: list[PathText] = field(default_factory=list)
    """Files of two columns with a tab between them."""
    jsonl: list[PathText] = field(default_factory=list)
    """Files of one JSON object a line."""
    huggingface: list[PathText] = field(default_factory=list)
    """Folders that Hugging Face's `Dataset.save_to_disk` wrote (optional package: zeromt[huggingface])."""
    source_field: FieldPath = "source"
    """The key of the source in a JSON object or row, such as `translation.en`: a key of exactly this name, else `en`
    within `translation`.
    """
    target_field: FieldPath = "target"
    """The key of the target, as `source_field`."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        forms = [n for n in ("tsv", "jsonl", "huggingface") if getattr(self, n)]
        if self.source or self.target:
            forms.insert(0, "source and target")
        if len(forms) > 1:
            yield f"{', '.join(forms)}: given together; give one form"
        if len(self.source) != len(self.target):
            yield f"source: {len(self.source)} files, target {len(self.target)}; both must have as many"

    @property
    def is_empty(self) -> bool:
        """Whether no file is named."""
        return not (self.source or self.target or self.tsv or self.jsonl or self.huggingface)


@dataclass(kw_only=True, slots=True, frozen=True)
class TokenizerSection:
    """SentencePiece (Kudo and Richardson, 2018): one joint vocabulary or one for each side."""

    __pydantic_config__ = STRICT

    path: PathText | None = None
    """A prepared dataset, or a folder that holds tokenizer.model: its tokenizer is used and none is trained."""
    kind: Literal["bpe", "unigram"] = "bpe"
    """SentencePiece's algorithm: byte-pair encoding, or a unigram language model."""
    vocabulary: Literal["joint", "separate"] = "joint"
    """One for both languages, or one for each."""
    vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] = 8000
    """Pieces of the joint vocabulary, or of the source's; special pieces included."""
    target_vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
    """Pieces of the target's vocabulary, if there are two; by default `vocab_size`."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 1.0
    """Fraction of the corpus's characters that the pieces spell; the rarest ones are left to the unknown piece."""
    byte_fallback: bool = False
    """Spell characters without a piece as bytes, so that nothing is unknown."""
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc"
    """SentencePiece's rule for the text before it is cut."""
    tags: list[Tag] = field(default_factory=list)
    """Target-language tags such as `>>fra<<`: each becomes one piece, recognised at the start of a source line."""
    spare: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of pieces reserved for future tags: a later dataset, whose `path` is this tokenizer and whose `tags` name
    a new tag, uses a reserved piece for it, and existing runs can go on with that dataset.
    """
    sample_pairs: Positive = 500_000
    """The tokenizer is trained on at most this many pairs, drawn evenly over the whole corpus."""
    sample_megabytes: Positive = 128
    """And on at most this much text; training needs a multiple of it in memory, which is printed."""
    bpe_dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    """BPE-dropout in training (Provilkov et al., 2020), for runs on this dataset whose `stream.augment` has no subword
    modifier: the same as `stream.augment: [{kind: bpe_dropout, dropout: ...}]`. The shards hold the plain pieces.
    """
    threads: Annotated[int, Field(ge=1, le=128)] = 4
    """Threads of the training. The result of a unigram model depends on their number."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.target_vocab_size is not None and self.vocabulary == "joint":
            yield "target_vocab_size: given with vocabulary=joint; allowed with vocabulary=separate only"
        if self.bpe_dropout and self.kind == "unigram":
            yield (
                f"bpe_dropout: {self.bpe_dropout} with kind=unigram; use kind=bpe, or "
                "stream.augment=[{kind: unigram_sampling}]"
            )
        if len(set(self.tags)) != len(self.tags):
            yield f"tags: {', '.join(self.tags)}; name each once"


@dataclass(kw_only=True, slots=True, frozen=True)
class CleaningSection:
    """Filters of training pairs, in the order in which they run. What a filter rejects is counted in the report.

    Empty pairs and those of more than `prepare.max_pieces` pieces are always rejected.
    """

    __pydantic_config__ = STRICT

    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalisation of both sides, before all other filters."""
    control_characters: Literal["keep", "remove", "drop"] = "keep"
    """Control characters (Cc except tab, invisible Cf except joiners): removed, or dropped with their pair."""
    identical: Literal["keep", "drop"] = "keep"
    """What to do with pairs whose sides are identical."""
    max_characters: Positive | None = None
    """Longest side, in characters."""
    source_scripts: list[Script] = field(default_factory=list)
    """Unicode scripts of the source's letters, such as [Latin] or [Han, Hiragana, Katakana]; empty allows all."""
    target_scripts: list[Script] = field(default_factory=list)
    """The same of the target."""
    min_script_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum fraction of a side's letters in its scripts. A side without letters passes."""
    language_identification: bool = False
    """Reject pairs with a side in another language (optional package: zeromt[langid])."""
    min_language_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum probability at which a side counts as another language."""
    held_out_overlap: Literal["keep", "pair", "side"] = "keep"
    """Reject pairs that are in the validation or test sets: as the same pair, or with either side."""
    max_length_ratio: Annotated[float, Field(ge=1)] | None = None
    """Maximum ratio of the longer side's pieces to the shorter side's."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Reject repeated pairs, keeping the first, over the whole corpus."""


@dataclass(kw_only=True, slots=True, frozen=True)
class PrepareSection:
    """What `zeromt prepare` reads, and the dataset that it writes."""

    __pydantic_config__ = STRICT

    output: PathText = "data/prepared"
    """Folder of the prepared dataset."""
    root: PathText = "."
    """Folder to which the names of corpus files are relative."""
    source_language: Language = "en"
    """Code of the source language: en, eng, eng_Latn."""
    target_language: Language = "de"
    """Code of the target language."""
    train: CorpusFiles = field(default_factory=CorpusFiles)
    valid: CorpusFiles = field(default_factory=CorpusFiles)
    test: CorpusFiles = field(default_factory=CorpusFiles)
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    cleaning: CleaningSection = field(default_factory=CleaningSection)
    filters: list[Annotated[Filter, Choice("filter")]] = field(default_factory=list)
    """Further filters of the text, each a component of data_pipeline/preparation/filters or of a plugin: applied after
    those of `cleaning` that look at the text, in this order."""
    target_tag: Tag | None = None
    """Put before every source line of this dataset, such as `>>fra<<`; one of `tokenizer.tags`."""
    tag_both_sides: bool = False
    """As in M2M100 and NLLB: every source begins with its language's tag, such as `>>eng_Latn<<`, and every target with
    its own, which is forced in translation.
    """
    max_pieces: Annotated[int, Field(ge=1, le=65_000)] = 512
    """Training pairs with more pieces on either side are rejected and counted."""
    max_unknown: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Refuse the corpus if more than this fraction of either side's pieces is unknown to the tokenizer (`<unk>`)."""
    on_bad_pair: Literal["drop", "error"] = "drop"
    """What to do with empty and too long training pairs. An unreadable file is always an error."""
    pairs_per_block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Pairs in a block; by default 1,024, or fewer for a small corpus, so that there are blocks for every rank."""
    blocks_per_shard: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Blocks in one tar file."""
    workers: Count = 0
    """Number of encoding processes; 0 takes one per core. The result does not depend on it."""
    seed: Count = 1
    """Seed of the shuffle, and of the sample that the tokenizer is trained on."""
    record_places: bool = False
    """Record the raw file and line that each pair comes from, for `zeromt batch`: 8 bytes per pair."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.target_tag is not None and self.tokenizer.path is None and not self._has_target_tag():
            tags = ", ".join(self.tokenizer.tags) or "none"
            yield f"target_tag: {self.target_tag} is not in tokenizer.tags ({tags}); allowed is one of them"
        if not self.tag_both_sides:
            return
        if self.target_tag is not None:
            yield f"target_tag: {self.target_tag} with tag_both_sides=true; use one of them"
        if self.tokenizer.vocabulary == "separate":
            yield "tag_both_sides: true with tokenizer.vocabulary=separate; use a joint one"

    def _has_target_tag(self) -> bool:
        """Whether `target_tag` is one of `tokenizer.tags`, by whichever of its language's codes."""
        languages = [tag[2:-2] for tag in self.tokenizer.tags]
        return self.target_tag is not None and bool(same_language(self.target_tag[2:-2], languages))


@dataclass(kw_only=True, slots=True, frozen=True)
class DatasetSource:
    """A prepared dataset and its weight in the mixture."""

    __pydantic_config__ = STRICT

    path: PathText
    """A folder, or a URL of one (http, https, s3, gs; optional packages: zeromt[http], zeromt[s3], zeromt[gs])."""
    weight: PositiveFloat | None = None
    """Its proportion of the pairs is this over the sum of all weights. By default: by size and `stream.temperature`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class StreamSection:
    """The stream: how an epoch's pairs become updates, independently of the number of ranks."""

    __pydantic_config__ = STRICT

    datasets: list[DatasetSource] = field(default_factory=list)
    """Prepared datasets; empty takes `prepare.output`."""
    micro_batches: Annotated[int, Field(ge=1, le=65_536)] = 2
    """K: micro-batches of an update, and lanes of an epoch. Any number of ranks up to K can divide them."""
    source_tokens: Positive = 4096
    """Budget of a micro-batch in padded source tokens: rows times longest source."""
    target_tokens: Positive = 4096
    """Budget of a micro-batch in padded target tokens: rows times longest target."""
    max_rows: Positive = 1024
    """Most pairs of a micro-batch, however short they are."""
    window_pairs: Annotated[int, Field(ge=1, le=50_000_000)] = 262_144
    """Pairs that a lane shuffles and sorts at once. More means more memory and less padding."""
    length_multiple: Annotated[int, Field(ge=1, le=512)] = 1
    """Padded lengths are rounded up to a multiple of this (8 suits tensor cores)."""
    on_oversized_pair: Literal["error", "drop"] = "error"
    """What to do with a pair that no micro-batch can hold."""
    prefetch_updates: Annotated[int, Field(ge=0, le=1024)] = 4
    """Updates read ahead; 0 without workers reads in the training loop. The order does not depend on it."""
    workers: Annotated[int, Field(ge=0, le=64)] = 0
    """Processes of each rank that read and collate; 0 uses a thread. The order does not depend on it."""
    max_corrupt_blocks: Count = 0
    """Number of corrupt blocks that a rank skips and counts before it stops; 0 stops at the first."""
    temperature: Annotated[float, Field(ge=1, le=100)] = 1.0
    """T of a mixture without weights: a dataset of n pairs gives pairs in proportion to n ** (1 / T)."""
    augment: list[Annotated[Modifier, Choice("modifier")]] = field(default_factory=list)
    """Modifiers of training pairs, applied in this order, with new draws in each pass: see docs/augmentation.md."""
    cache: str = "~/.cache/zeromt"
    """Folder that caches remote data."""
    cache_gigabytes: PositiveFloat = 50.0
    """Maximum size of the cache; the least recently used data are deleted first."""
    retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Retries of a failed remote read, doubling the pause each time."""
    timeout_seconds: PositiveFloat = 60.0
    """Time limit of one remote read."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        weighted = [d for d in self.datasets if d.weight is not None]
        if weighted and len(weighted) < len(self.datasets):
            bare = next(d.path for d in self.datasets if d.weight is None)
            yield f"datasets: {bare} has no weight, others have; give all of them a weight, or none"
        if weighted and self.temperature != 1:
            yield f"temperature: {self.temperature:g} with weights; give one or the other"
        paths = [d.path for d in self.datasets]
        if twice := {p for p in paths if paths.count(p) > 1}:
            yield f"datasets: {min(twice)} is named more than once; name it once, with a weight"
        yield from order_problems(self.augment)


@dataclass(kw_only=True, slots=True, frozen=True)
class PlateauSection:
    """A figure of the validation sets has not become better for some evaluations of the phase."""

    __pydantic_config__ = STRICT

    metric: str | None = None
    """The name of one of `evaluation.metrics`, loss or nll; by default `checkpoint.best_by`."""
    patience: Positive = 3
    """Evaluations in a row that are not better than the best of this phase."""
    min_delta: NonNegativeFloat = 0.0
    """Better is by more than this, in the figure's unit."""


@dataclass(kw_only=True, slots=True, frozen=True)
class UntilSection:
    """When a phase is over: one of these."""

    __pydantic_config__ = STRICT

    updates: Positive | None = None
    """After so many updates."""
    passes: Positive | None = None
    """After so many passes over its data: epochs of its mixture, where it has several datasets."""
    plateau: PlateauSection | None = None

    def describe(self) -> str:
        """In words, for people."""
        if (plateau := self.plateau) is not None:
            return f"until {plateau.patience:,} evaluation{'s are' if plateau.patience > 1 else ' is'} no better"
        return f"{self.updates:,} updates" if self.updates else f"{self.passes:,} pass{'es' * (self.passes != 1)}"

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        given = [one.name for one in dataclasses.fields(self) if getattr(self, one.name) is not None]
        if len(given) != 1:
            yield f"updates: {' and '.join(given) or 'nothing'} given; give one of updates, passes and plateau"


@dataclass(kw_only=True, slots=True, frozen=True)
class PhaseSection:
    """A part of a run with data of its own. What it does not name is that of the section `stream`, or `schedule`."""

    __pydantic_config__ = STRICT

    name: Name
    """Of the phase, in logs, figures and checkpoints."""
    until: UntilSection | None = None
    """When the next phase begins, or the run ends; the last one may have none."""
    datasets: list[DatasetSource] | None = None
    """In the place of `stream.datasets`."""
    temperature: Annotated[float, Field(ge=1, le=100)] | None = None
    """In the place of `stream.temperature`."""
    augment: list[Annotated[Modifier, Choice("modifier")]] | None = None
    """In the place of `stream.augment`; [] changes nothing."""
    schedule: Annotated[Schedule | None, Choice("schedule", "inverse_sqrt", is_optional=True)] = None
    """A schedule that begins with the phase, up to `optimizer.lr`; without it that of the run goes on."""

    def stream(self, of_run: StreamSection) -> StreamSection:
        """What it reads, given the section `stream` of the run."""
        given = {n: v for n in ("datasets", "temperature", "augment") if (v := getattr(self, n)) is not None}
        if any(source.weight is not None for source in self.datasets or ()):
            given.setdefault("temperature", 1.0)
        return dataclasses.replace(of_run, **given)

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.datasets == []:
            yield "datasets: none; name at least one, or leave datasets out to read those of stream.datasets"
