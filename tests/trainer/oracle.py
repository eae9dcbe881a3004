"""The numeric oracle: an update in plain PyTorch, one process, no DeepSpeed. Run the real trainer beside it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from configs import Optimizer, RunConfig
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.reader import StreamReader
from model import SpecialIds, build_transformer
from model.components.loss import CrossEntropyLoss
from model.kernels import use_kernels
from tests.model.flat import flat
from trainer.engines.batches import micro_batch_seed
from trainer.optimizers.adafactor import Adafactor
from trainer.optimizers.adamw import AdamW
from trainer.optimizers.muon import Muon


@dataclass(kw_only=True, frozen=True)
class PlainRun:
    """What became of it: loss and gradient norm of every update, weights and their moving average at the end."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, torch.Tensor]
    ema: dict[str, torch.Tensor]


def optimizers_of(
    model: nn.Module, o: Optimizer, *, rate_of: Callable[[str], float] = lambda _: 1.0
) -> list[torch.optim.Optimizer]:
    """torch's own, of the kind and with the fields of a section; for `rate_of` see `plain_run`."""
    factors = {p: factor for name, p in model.named_parameters() if (factor := rate_of(name))}
    matrices = {layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)}  # embeddings are none
    of_muon = [p for p in factors if isinstance(o, Muon) and p in matrices]

    def groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
        return [
            {"params": [p], "lr": factors[p] * o.lr, "weight_decay": o.weight_decay * (p.ndim >= 2)} for p in parameters
        ]

    others = groups(p for p in factors if p not in set(of_muon))
    if isinstance(o, Adafactor):
        return [torch.optim.Adafactor(others, beta2_decay=o.beta2_decay, eps=(None, o.eps), d=o.clip_threshold)]
    assert isinstance(o, AdamW | Muon)
    adamw = torch.optim.AdamW(others, betas=(o.beta1, o.beta2), eps=o.eps)
    if isinstance(o, AdamW):
        return [adamw]
    fields: dict[str, Any] = {"momentum": o.momentum, "nesterov": o.nesterov, "adjust_lr_fn": o.adjust_lr}
    return [torch.optim.Muon(groups(of_muon), **fields), adamw]


def plain_run(
    config: RunConfig,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    rate_of: Callable[[str], float] = lambda _: 1.0,
    l2_to_parent: float = 0.0,
) -> PlainRun:
    """A run at a constant learning rate, its data and dropout alike.

    Loss, gradient accumulation, clipping and optimizer are torch's own; only the model and the order of pairs are
    shared.

    Args:
        config: of the run.
        weights: to begin with, by name; None: those of a new model.
        rate_of: gives the factor of a parameter's learning rate, by its name; 0 of one that is frozen.
        l2_to_parent: coefficient of the L2 towards the first weights, decoupled as AdamW's weight decay is.
    """
    dataset = Dataset.load(Path(config.datasets[0].path))
    reader = StreamReader([(dataset, 1.0)], config.stream, seed=config.seed, rank=0, world_size=1)
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
    factors = {p: factor for name, p in model.named_parameters() if (factor := rate_of(name))}
    for p in model.parameters():
        p.requires_grad_(p in factors)
    parameters = list(factors)
    o, smoothing = config.optimizer, config.loss
    assert isinstance(smoothing, CrossEntropyLoss)
    optimizers = optimizers_of(model, o, rate_of=rate_of)
    first = {p: p.detach().clone() for p in parameters}
    ema = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses: list[float] = []
    norms: list[float] = []
    while len(losses) < config.training.max_updates:
        epoch, update = reader.epoch, reader.update
        micro_batches = [m for m in reader.next_update() if m is not None]
        if not micro_batches:
            reader.end_epoch()
            continue
        num_tokens = sum(int((m.target_output != 0).sum()) for m in micro_batches)
        total = 0.0
        for m in micro_batches:
            torch.manual_seed(micro_batch_seed(config.seed, epoch, update, m.lane))
            hidden = model(torch.from_numpy(m.source), torch.from_numpy(m.target_input))
            logits = F.linear(hidden, model.output.weight, model.output.bias).flatten(0, 1)
            targets = torch.from_numpy(m.target_output).flatten()
            loss = F.cross_entropy(
                logits, targets, ignore_index=0, label_smoothing=smoothing.label_smoothing, reduction="sum"
            )
            torch.autograd.backward(loss / num_tokens)
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, o.clip_norm).item())
        with torch.no_grad():
            for p, factor in factors.items():
                p.add_(first[p] - p, alpha=factor * o.lr * l2_to_parent)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        decay = min(config.training.ema_decay, (1 + len(losses)) / (10 + len(losses)))
        ema = {name: decay * ema[name] + (1 - decay) * p.detach() for name, p in model.named_parameters()}
        losses.append(total / num_tokens)
    reader.close()
    final = {name: p.detach() for name, p in model.named_parameters()}
    return PlainRun(losses=losses, norms=norms, weights=final, ema=ema)
