"""The numeric oracle: an update in plain PyTorch, one process, no DeepSpeed. Run the real trainer beside it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from configs import Optimizer, RunConfig
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader
from model import SpecialIds, build_transformer
from model.components.loss import CrossEntropyLoss
from model.kernels import use_kernels
from tests.model.flat import flat
from trainer.engines.batches import micro_batch_seed
from trainer.optimizers.standard import Adafactor, AdamW, Muon


@dataclass(kw_only=True, frozen=True)
class PlainRun:
    """What became of it: loss and gradient norm of every update, weights and their moving average at the end."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, torch.Tensor]
    ema: dict[str, torch.Tensor]


def optimizers_of(model: nn.Module, o: Optimizer) -> list[torch.optim.Optimizer]:
    """torch's own, of the kind and with the fields of a section."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = {layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)}  # embeddings are none
    of_muon = [p for p in trained if isinstance(o, Muon) and p in matrices]

    def groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": [p], "lr": o.lr, "weight_decay": o.weight_decay * (p.ndim >= 2)} for p in parameters]

    others = groups(p for p in trained if p not in set(of_muon))
    if isinstance(o, Adafactor):
        return [torch.optim.Adafactor(others, beta2_decay=o.beta2_decay, eps=(None, o.eps), d=o.clip_threshold)]
    assert isinstance(o, AdamW | Muon)
    adamw = torch.optim.AdamW(others, betas=(o.beta1, o.beta2), eps=o.eps)
    if isinstance(o, AdamW):
        return [adamw]
    fields: dict[str, Any] = {"momentum": o.momentum, "nesterov": o.nesterov, "adjust_lr_fn": o.adjust_lr}
    return [torch.optim.Muon(groups(of_muon), **fields), adamw]


def pair_weights(dataset: Dataset, given: float | str | None) -> NDArray[np.float64]:
    """(pairs,): what the loss of each pair counts, of a dataset's `loss_weight`."""
    if isinstance(given, str):
        return np.asarray(dataset.score(given), dtype=np.float64)
    return np.full(dataset.num_pairs, 1.0 if given is None else given)


def loss_sum(model: nn.Module, m: MicroBatch, scale: NDArray[np.float64], smoothing: float) -> torch.Tensor:
    """Of the tokens of a micro-batch, each times its scale (B, T)."""
    hidden = model(torch.from_numpy(m.source), torch.from_numpy(m.target_input))
    output: Any = model.output
    logits = F.linear(hidden, output.weight, output.bias).flatten(0, 1)
    targets = torch.from_numpy(m.target_output).flatten()
    each = F.cross_entropy(logits, targets, ignore_index=0, label_smoothing=smoothing, reduction="none")
    return (each * torch.from_numpy(scale).to(each).flatten()).sum()


def plain_run(
    config: RunConfig,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    is_frozen: Callable[[str], bool] = lambda _: False,
) -> PlainRun:
    """A run at a constant learning rate, its data and dropout alike.

    Loss, gradient accumulation, clipping and optimizer are torch's own; only the model and the order of pairs are
    shared.

    Args:
        config: of the run.
        weights: to begin with, by name; None: those of a new model.
        is_frozen: whether a parameter stays as it is, by its name.
    """
    sources = [(Dataset.load(Path(source.path)), source) for source in config.datasets]
    read = [(dataset, source.weight) for dataset, source in sources]
    reader, dataset = StreamReader(read, config.stream, seed=config.seed, rank=0, world_size=1), sources[0][0]
    of_pairs = np.concatenate([pair_weights(dataset, source.loss_weight) for dataset, source in sources])
    model = build_transformer(
        config.model,
        source_vocab_size=dataset.tokenizer.source_vocab_size,
        target_vocab_size=dataset.tokenizer.target_vocab_size,
        special=SpecialIds(pad=0, bos=1, eos=2),
        seed=config.seed,
    ).train()
    fields = flat(config.model)
    if fields.dropout or fields.attention_dropout or fields.activation_dropout:
        use_kernels(model, torch.device("cpu"))  # theirs are the masks that are drawn; else the equations stand alone
    if weights is not None:
        model.load_state_dict(dict(weights), strict=False)
    for name, p in model.named_parameters():
        p.requires_grad_(not is_frozen(name))
    parameters = [p for p in model.parameters() if p.requires_grad]
    o, smoothing = config.optimizer, config.loss
    assert isinstance(smoothing, CrossEntropyLoss)
    optimizers = optimizers_of(model, o)
    ema = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses: list[float] = []
    norms: list[float] = []
    while len(losses) < config.training.max_updates:
        epoch, update = reader.epoch, reader.update
        micro_batches = [m for m in reader.next_update() if m is not None]
        if not micro_batches:
            reader.end_epoch()
            continue
        scales = [of_pairs[m.pair_ids][:, None] * (m.target_output != 0) for m in micro_batches]
        if (divisor := float(sum(scale.sum() for scale in scales))) == 0:
            continue
        total = 0.0
        for m, scale in zip(micro_batches, scales, strict=True):
            torch.manual_seed(micro_batch_seed(config.seed, epoch, update, m.lane))
            loss = loss_sum(model, m, scale, smoothing.label_smoothing)
            torch.autograd.backward(loss / divisor)
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, o.clip_norm).item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        decay = min(config.training.ema_decay, (1 + len(losses)) / (10 + len(losses)))
        ema = {name: decay * ema[name] + (1 - decay) * p.detach() for name, p in model.named_parameters()}
        losses.append(total / divisor)
    reader.close()
    final = {name: p.detach() for name, p in model.named_parameters()}
    return PlainRun(losses=losses, norms=norms, weights=final, ema=ema)
