"""The sections about data: how it is prepared and streamed. `configs.schema` says what all sections have in common."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from configs.components import Choice, Filter, Modifier, Schedule, unknown
from configs.components.data import order_problems
from configs.corpus import CorpusFiles, ScoreName
from configs.fields import STRICT, Count, Language, Name, NonNegativeFloat, PathText, Positive, PositiveFloat
from configs.languages import same_language

Tag = Annotated[str, Field(pattern=r"^>>[^<>\s]{1,32}<<$")]
UNDETERMINED = "und"
"""ISO 639-2's code for an unknown language: that of a run imported without languages."""
Script = Annotated[str, Field(pattern=r"^[A-Za-z_]{2,40}$")]
LossWeight = Annotated[float, Field(ge=0, le=1000)]


@dataclass(kw_only=True, slots=True, frozen=True)
class TokenizerSection:
    """A SentencePiece tokenizer (Kudo and Richardson, 2018) with a joint vocabulary, or one for each side."""

    __pydantic_config__ = STRICT

    path: PathText | None = None
    """A prepared dataset, or a folder with tokenizer.model, whose tokenizer is used instead of training one."""
    kind: Literal["bpe", "unigram"] = "bpe"
    """SentencePiece's algorithm: byte-pair encoding, or a unigram language model."""
    vocabulary: Literal["joint", "separate"] = "joint"
    """joint: one vocabulary for both languages; separate: one for each."""
    vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] = 8000
    """Size of the joint vocabulary, or of the source's, including special pieces."""
    target_vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
    """Size of the target's vocabulary if it is separate; by default `vocab_size`."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0
    """Fraction of the corpus's characters that pieces cover; the rarest characters become the unknown piece."""
    byte_fallback: bool = False
    """Spell characters without a piece as bytes, so that no character is unknown."""
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc"
    """SentencePiece's normalization of the text before it is segmented."""
    tags: list[Tag] = field(default_factory=list)
    """Target-language tags such as `>>fra<<`: each is one piece, recognised at the start of a source line. Name those
    of later data too, such as `>>bt<<`: one that is missing needs another tokenizer."""
    sample_pairs: Positive = 500_000
    """Maximum number of pairs to train the tokenizer on, drawn evenly from the whole corpus."""
    sample_megabytes: Positive = 128
    """Maximum size of their text. Training needs a multiple of it in memory."""
    threads: Annotated[int, Field(ge=1, le=128)] = 4
    """Threads that train the tokenizer. A unigram model depends on their number."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if self.target_vocab_size is not None and self.vocabulary == "joint":
            yield "target_vocab_size: given with vocabulary=joint; remove it, or set vocabulary=separate"


@dataclass(kw_only=True, slots=True, frozen=True)
class CleaningSection:
    """Filters of training pairs, in the order in which they run. The report counts what each rejects.

    Empty pairs, and pairs with more than `prepare.max_pieces` pieces on a side, are always rejected.
    """

    __pydantic_config__ = STRICT

    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization of both sides, before all other filters."""
    control_characters: Literal["keep", "remove"] = "keep"
    """remove: delete control characters (Cc except tab, invisible Cf except joiners)."""
    identical: Literal["keep", "drop"] = "keep"
    """drop: reject pairs whose two sides are identical."""
    max_characters: Positive | None = None
    """Maximum length of a side in characters; longer pairs are rejected."""
    source_scripts: list[Script] = field(default_factory=list)
    """Unicode scripts expected in the source, such as [Latin] or [Han, Hiragana, Katakana]; empty allows all."""
    target_scripts: list[Script] = field(default_factory=list)
    """Unicode scripts expected in the target."""
    min_script_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum fraction of a side's letters that are in its scripts. A side without letters passes."""
    language_identification: bool = False
    """Reject pairs with a side in another language, by `language_model` (optional package: zeromt[langid])."""
    min_language_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum probability at which a side counts as being in another language."""
    language_model: PathText = "py3langid"
    """What identifies languages: py3langid, or the path of a fastText model such as lid.176.bin (zeromt[fasttext]),
    with labels like __label__en or __label__eng_Latn."""
    held_out_overlap: Literal["keep", "pair", "side"] = "keep"
    """Reject pairs that occur in the validation or test sets: as the same pair, or with one side the same."""
    max_length_ratio: Annotated[float, Field(ge=1)] | None = None
    """Maximum number of pieces of the longer side, divided by that of the shorter side."""
    duplicates: Literal["keep", "drop"] = "keep"
    """drop: keep only the first of several identical pairs in the whole corpus."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ScoreCommand:
    """A program that gives pairs of the raw corpus a score, before the filters: see docs/data.md."""

    __pydantic_config__ = STRICT

    command: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments; no shell. It reads pairs and writes scores as lines of JSON."""
    depends: list[PathText] = field(default_factory=list)
    """Files and folders that the scores depend on, as the program itself and its model: their content is noted with
    the scores."""
    batch: Positive = 256
    """Pairs of a batch; the program has up to two at once."""
    seconds: PositiveFloat = 600.0
    """Longest wait for its next answer, loading a model included."""


@dataclass(kw_only=True, slots=True, frozen=True)
class PrepareSection:
    """The corpus that `zeromt prepare` reads, and the dataset that it writes."""

    __pydantic_config__ = STRICT

    output: PathText = "data/prepared"
    """Folder of the prepared dataset."""
    root: PathText = "."
    """Folder that the paths of corpus files are relative to."""
    source_language: Language = "en"
    """Code of the source language, such as en, eng or eng_Latn."""
    target_language: Language = "de"
    """Code of the target language."""
    train: CorpusFiles = field(default_factory=CorpusFiles)
    valid: CorpusFiles = field(default_factory=CorpusFiles)
    test: CorpusFiles = field(default_factory=CorpusFiles)
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    cleaning: CleaningSection = field(default_factory=CleaningSection)
    filters: list[Annotated[Filter, Choice("filter")]] = field(default_factory=list)
    """Further filters of the text: components of data_pipeline/preparation/filters, or plugins. They run in this order,
    after those filters of `cleaning` that look at the text."""
    scores: dict[ScoreName, ScoreCommand] = field(default_factory=dict)
    """Scores of training pairs that programs give, by name."""
    target_tag: Tag | None = None
    """Tag put before every source line of this dataset, such as `>>fra<<`; must be one of `tokenizer.tags`."""
    tag_both_sides: bool = False
    """As in M2M100 and NLLB: every sentence begins with the tag of its language, such as `>>eng_Latn<<`; translations
    are forced to begin with the target's.
    """
    max_pieces: Annotated[int, Field(ge=1, le=65_000)] = 512
    """Training pairs with more pieces on either side are rejected and counted."""
    max_unknown: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Refuse the corpus if more than this fraction of one side's pieces is unknown to the tokenizer (`<unk>`)."""
    pairs_per_block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Pairs in a block; by default 1,024, or fewer for a small corpus, so that there are blocks for every rank."""
    blocks_per_shard: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Blocks in a shard, which is a tar file."""
    workers: Count = 0
    """Number of encoding processes; 0: one per core. The result does not depend on it."""
    seed: Count = 1
    """Seed of the shuffle, and of the sample that the tokenizer is trained on."""
    record_places: bool = False
    """Record the raw file and line that each pair comes from, for `zeromt batch`; 8 bytes per pair."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if self.target_tag is not None and self.tokenizer.path is None and not self._has_target_tag():
            tags = ", ".join(self.tokenizer.tags) or "none"
            yield f"target_tag: {self.target_tag} is not in tokenizer.tags ({tags}); add it there, or use one of them"
        yield from self._score_problems()
        if not self.tag_both_sides:
            return
        if self.target_tag is not None:
            yield f"target_tag: {self.target_tag} with tag_both_sides=true; use one of them"
        if self.tokenizer.vocabulary == "separate":
            yield "tag_both_sides: true with tokenizer.vocabulary=separate; use a joint one"

    def _score_problems(self) -> Iterator[str]:
        names = [*self.train.scores, *self.scores]
        if twice := sorted(self.train.scores.keys() & self.scores):
            yield f"scores.{twice[0]}: is a score of prepare.train too; give it another name"
        for split, files in (("valid", self.valid), ("test", self.test)):
            if files.scores or files.licence or files.attribution:
                yield f"{split}: scores, licence and attribution of a held-out set are not used; remove them"
        for number, filter_ in enumerate(self.filters):
            for name in filter_.score_names():
                if name not in names:
                    said = unknown(name, dict.fromkeys(names, None), what="score")
                    yield f"filters.{number}.score: {said} (prepare.scores, prepare.train)"

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of both sides."""
        return self.source_language, self.target_language

    def _has_target_tag(self) -> bool:
        """Whether `tokenizer.tags` has `target_tag`, perhaps with another code of its language."""
        languages = [tag[2:-2] for tag in self.tokenizer.tags]
        return self.target_tag is not None and bool(same_language(self.target_tag[2:-2], languages))


@dataclass(kw_only=True, slots=True, frozen=True)
class DatasetSource:
    """A prepared dataset and its weight in the mixture."""

    __pydantic_config__ = STRICT

    path: PathText
    """Path or URL of the dataset (http, https, s3, gs; optional packages: zeromt[http], zeromt[s3], zeromt[gs])."""
    weight: PositiveFloat | None = None
    """The dataset's proportion of the pairs is its weight over the sum of all. By default: see `stream.temperature`."""
    loss_weight: LossWeight | ScoreName | None = None
    """What the loss of its pairs is multiplied by: a number, or the name of a score of the dataset, 0 to 1000 each. By
    default 1. How often pairs are read does not depend on it: see docs/data.md."""


@dataclass(kw_only=True, slots=True, frozen=True)
class StreamSection:
    """The stream: how the pairs of an epoch become updates, which do not depend on the number of ranks."""

    __pydantic_config__ = STRICT

    datasets: list[DatasetSource] = field(default_factory=list)
    """Prepared datasets to train on, of several corpora as a mixture; if empty, `prepare.output`."""
    micro_batches: Annotated[int, Field(ge=1, le=65_536)] = 2
    """K: number of micro-batches in an update, and of lanes in an epoch; divided among any number of ranks up to K."""
    source_tokens: Positive = 4096
    """Budget of a micro-batch in source tokens."""
    target_tokens: Positive = 4096
    """Budget of a micro-batch in target tokens."""
    budget: Literal["padded", "tokens"] = "padded"
    """padded: the budgets are of padded tokens, number of rows times longest row. tokens: of true tokens, for GPUs that
    pack rows; where rows are padded such a micro-batch is larger than its budgets."""
    max_rows: Positive = 1024
    """Maximum number of pairs in a micro-batch, however short they are."""
    window_pairs: Annotated[int, Field(ge=1, le=50_000_000)] = 262_144
    """Number of pairs that a lane shuffles and buckets at once. More take more memory and need less padding."""
    length_multiple: Annotated[int, Field(ge=1, le=512)] = 1
    """Padded lengths are rounded up to a multiple of this (8 suits tensor cores)."""
    on_oversized_pair: Literal["error", "drop"] = "error"
    """What to do with a pair that is longer than the budget of a micro-batch."""
    prefetch_updates: Annotated[int, Field(ge=0, le=1024)] = 4
    """Number of updates to read ahead; 0 without workers reads in the training loop. Does not affect the order."""
    workers: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of processes per rank that read and collate; 0 uses a thread. Does not affect the order."""
    temperature: Annotated[float, Field(ge=1, le=100)] = 1.0
    """T of a mixture without weights: a dataset of n pairs gives pairs in proportion to n ** (1 / T)."""
    augment: list[Annotated[Modifier, Choice("modifier")]] = field(default_factory=list)
    """Modifiers of training pairs, applied in this order, with new draws in each pass: see docs/augmentation.md."""
    cache: str = "~/.cache/zeromt"
    """Folder that caches remote data."""
    cache_gigabytes: PositiveFloat = 50.0
    """Maximum size of the cache in gigabytes; the least recently used data are deleted first."""
    retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Number of retries of a failed remote read; the pause before a retry doubles each time."""
    timeout_seconds: PositiveFloat = 60.0
    """Time limit of one remote read."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        weighted = [d for d in self.datasets if d.weight is not None]
        if weighted and len(weighted) < len(self.datasets):
            bare = next(d.path for d in self.datasets if d.weight is None)
            yield f"datasets: {bare} has no weight, but others have; give all of them a weight, or none"
        if weighted and self.temperature != 1:
            yield f"temperature: {self.temperature:g} with weights; use one or the other"
        paths = [d.path for d in self.datasets]
        if twice := {p for p in paths if paths.count(p) > 1}:
            yield f"datasets: {min(twice)} is named more than once; name it once, with a weight"
        yield from order_problems(self.augment)


@dataclass(kw_only=True, slots=True, frozen=True)
class PlateauSection:
    """Ends a phase when a figure of the validation sets has not improved for some of its evaluations."""

    __pydantic_config__ = STRICT

    metric: str | None = None
    """The name of one of `evaluation.metrics`, loss or nll; by default `checkpoint.best_by`."""
    patience: Positive = 3
    """Number of evaluations in a row that are not better than the best of this phase."""
    min_delta: NonNegativeFloat = 0.0
    """An improvement must be larger than this, in the figure's unit."""


@dataclass(kw_only=True, slots=True, frozen=True)
class UntilSection:
    """When a phase ends; exactly one field must be given."""

    __pydantic_config__ = STRICT

    updates: Positive | None = None
    """The phase ends after this many updates."""
    passes: Positive | None = None
    """The phase ends after this many passes over its data; with several datasets, epochs of the mixture."""
    plateau: PlateauSection | None = None

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        given = [one.name for one in dataclasses.fields(self) if getattr(self, one.name) is not None]
        if len(given) != 1:
            yield f"updates: {' and '.join(given) or 'nothing'} given; give one of updates, passes and plateau"


@dataclass(kw_only=True, slots=True, frozen=True)
class PhaseSection:
    """A part of a run with its own data. Fields that are not given are those of the run's `stream` and `schedule`."""

    __pydantic_config__ = STRICT

    name: Name
    """Name of the phase in logs, figures and checkpoints."""
    until: UntilSection | None = None
    """When the next phase begins or the run ends; may be omitted in the last phase."""
    datasets: list[DatasetSource] | None = None
    """Datasets of the phase, instead of `stream.datasets`."""
    temperature: Annotated[float, Field(ge=1, le=100)] | None = None
    """Temperature of the phase, instead of `stream.temperature`."""
    augment: list[Annotated[Modifier, Choice("modifier")]] | None = None
    """Modifiers of the phase, instead of `stream.augment`; [] for none."""
    schedule: Annotated[Schedule | None, Choice("schedule", "inverse_sqrt", is_optional=True)] = None
    """A schedule that starts with the phase and peaks at `optimizer.lr`; by default the run's schedule continues."""

    def stream(self, of_run: StreamSection) -> StreamSection:
        """The section `stream` of the phase, given that of the run."""
        given = {n: v for n in ("datasets", "temperature", "augment") if (v := getattr(self, n)) is not None}
        if any(source.weight is not None for source in self.datasets or ()):
            given.setdefault("temperature", 1.0)
        return dataclasses.replace(of_run, **given)

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if self.datasets == []:
            yield "datasets: none; name at least one, or omit the field to read stream.datasets"
