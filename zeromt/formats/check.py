"""The check of an export: its logits are compared with the model's, on real sentences if there are some."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from configs import CorpusFiles, RunConfig, UserError, load_saved
from configs.process.streams import tell
from data_pipeline.preparation.corpus import read_whole
from data_pipeline.preparation.report import is_dataset
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from model import Transformer
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.model_files import load_model
from trainer.inference.loading import TrainedModel, with_checkpoints
from trainer.runs.layout import CONFIG

TOLERANCE = 1e-4
_NUM_LINES = 16
_LONGEST_LINE = 64
_RANDOM_LENGTHS = ((1, 1), (3, 7), (17, 11), (40, 40))


class ExportError(UserError):
    """A model computes something else in another program."""


class Text(NamedTuple):
    """Sentences with their references."""

    sources: list[str]
    references: list[str]


class Sample(NamedTuple):
    """Pairs of ids to compute logits for; sources end with EOS, targets begin with BOS."""

    sources: list[list[int]]
    targets: list[list[int]]

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Padded ids (B, S) and (B, T), a few pairs at a time."""
        step = 4
        begins = range(0, len(self.sources), step)
        return [(pad(self.sources[i : i + step]), pad(self.targets[i : i + step])) for i in begins]


def load_exact(path: Path, *, raw: bool = False) -> TrainedModel:
    """The newest whole checkpoint of a run, or the one that was named, in fp32 on the CPU; for `raw`: `load_weights`.

    Raises:
        UserError: there is no whole checkpoint.
    """

    def load(checkpoints: Sequence[Checkpoint]) -> TrainedModel:
        [checkpoint] = checkpoints
        config = load_saved(checkpoint.folder / CONFIG)
        tokenizer = Tokenizer.load(checkpoint.folder)
        model = load_model(checkpoint, config.model, tokenizer, seed=config.seed, raw=raw)
        return TrainedModel(
            model=model.eval(),
            tokenizer=tokenizer,
            config=config,
            device=torch.device("cpu"),
            checkpoint=checkpoint,
            precision="fp32",
        )

    return with_checkpoints([str(path)], load)


def find_text(config: RunConfig, source: str | None, reference: str | None) -> Text | None:
    """The sentences that were named, else the validation set of the run's datasets if one is on this machine.

    Raises:
        UserError: the files cannot be read, or only one is named.
    """
    if (source is None) != (reference is None):
        missing = "--reference" if reference is None else "--source"
        raise UserError(f"{missing}: missing; give both --source and --reference, or neither")
    if source is not None and reference is not None:
        sources, references = read_whole(CorpusFiles(source=[source], target=[reference]), ".")
        return Text(sources=sources, references=references)
    for dataset in config.datasets:
        if "://" not in dataset.path and is_dataset(Path(dataset.path)):
            try:
                loaded = Dataset.load(dataset.path, config.stream)
                if "valid" in loaded.index.held_out:
                    sources, references = loaded.held_out("valid")
                    return Text(sources=list(sources), references=list(references))
            except UserError as error:  # a model can be exported without data
                tell(f"zeromt: validation set left out: {error}")
    return None


def make_sample(model: Transformer, tokenizer: Tokenizer, text: Text | None, *, longest: int | None = None) -> Sample:
    """Some of the text and some pairs of random pieces, one of the maximum length.

    Args:
        model: whose positions bound the length.
        tokenizer: the model's.
        text: sentences, if there are some.
        longest: maximum length in pieces without EOS, if it is less than the model's.
    """
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    most = min(longest or model.max_positions, model.max_positions - 1)
    if text is not None:
        cut = min(_LONGEST_LINE, most)
        sources += [ids[:cut] for ids in tokenizer.encode_source(text.sources[:_NUM_LINES])]
        targets += [ids[:cut] for ids in tokenizer.encode_target(text.references[:_NUM_LINES])]
    generator = torch.Generator().manual_seed(0)

    def random(length: int, vocab_size: int) -> list[int]:
        low = min(UNK_ID + 1, vocab_size - 1)
        drawn: list[int] = torch.randint(low, vocab_size, (min(length, most),), generator=generator).tolist()
        return drawn

    for source_length, target_length in (*_RANDOM_LENGTHS, (most, 2), (2, most)):
        sources.append(random(source_length, tokenizer.source_vocab_size))
        targets.append(random(target_length, tokenizer.target_vocab_size))
    return Sample(sources=[[*s, EOS_ID] for s in sources], targets=[[BOS_ID, *t] for t in targets])


@torch.inference_mode()
def logits_of(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> Tensor:
    """The model's logits (B, T, V)."""
    out: Tensor = model.output(model(source_BS, target_BT))
    return out


def check_logits(model: Transformer, sample: Sample, theirs: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Compare the logits of the exported model with the model's.

    Args:
        model: in fp32.
        sample: pairs to compute them for.
        theirs: the exported model: maps source ids (B, S) and target ids (B, T), both padded, to logits (B, T, V).

    Returns:
        The largest difference.

    Raises:
        ExportError: they differ by more than the tolerance.
    """
    largest = 0.0
    for source_BS, target_BT in sample.batches():
        ours_BTV = logits_of(model, source_BS, target_BT)
        theirs_BTV = theirs(source_BS, target_BT).float()
        if theirs_BTV.shape != ours_BTV.shape:
            raise ExportError(f"export: logits {tuple(theirs_BTV.shape)}; allowed is {tuple(ours_BTV.shape)}")
        difference = (ours_BTV - theirs_BTV).abs().masked_fill((target_BT == PAD_ID)[..., None], 0.0)
        largest = max(largest, _largest(difference))
    return accept(largest, "logits")


def accept(largest: float, what: str) -> float:
    """Check that a difference is small enough; returns it.

    Raises:
        ExportError: it is not.
    """
    if not largest <= TOLERANCE:  # false for a NaN
        raise ExportError(
            f"{what} of the two programs differ by {largest:.2g}, so nothing was written; allowed is {TOLERANCE:g}"
        )
    return largest


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, L) ids."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


def _largest(difference: Tensor) -> float:
    """The largest absolute difference; infinite if there is a NaN."""
    return float(difference.max()) if difference.isfinite().all() else float("inf")
