"""What of a model is trained, and how fast: patterns of parameters' names (`training.freeze`, `training.rates`).

A pattern is a name with the wildcards of a shell, of which `*` stands for dots too. It also stands for all that lies in
what it names: `encoder.layers.0` for that layer, not for the eleventh. A matrix that is tied has several names, any of
which will do.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from configs import RunConfig, UserError
from configs.components.model import UndeclaredError
from model.parameters import Vocabularies, parameters

TIED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "three-way": {"source_embedding.tokens.weight": ("target_embedding.tokens.weight", "output.weight")},
    "decoder": {"target_embedding.tokens.weight": ("output.weight",)},
    "none": {},
}
"""By `model.tied_embeddings`: the other names of a matrix that is listed at its first use."""
NEAREST = 3
"""Names that are suggested for a pattern that matches none."""


def factors(config: RunConfig, names: Collection[str] | None = None) -> dict[str, float]:
    """The factor of the learning rate of each parameter that is trained, by name; frozen ones are not among them.

    Args:
        config: of the run.
        names: of the model's parameters; by default those that its components declare.

    Raises:
        UserError: a pattern matches nothing, or nothing is left to train.
        UndeclaredError: without `names`, a component does not declare its parameters.
    """
    names = _declared(config) if names is None else names
    if (problem := next(_problems(config, names), None)) is not None:
        raise UserError(problem)
    return _factors(config, config.training.freeze, names)


def problems(config: RunConfig) -> Iterator[str]:
    """What is wrong with a configuration's patterns, one line each. A model that declares no parameters is not judged:
    it is when it is built."""
    training = config.training
    if not (training.freeze or training.rates):
        return
    try:
        names = _declared(config)
    except UndeclaredError:
        return
    yield from _problems(config, names)


def tied(config: RunConfig) -> Iterator[str]:
    """A line for each pattern that freezes, or slows down, a matrix by one of several names."""
    training = config.training
    fields = {"training.freeze": training.freeze, "training.rates": list(training.rates)}
    for field, patterns in fields.items():
        for pattern in patterns:
            for name, others in TIED[config.model.tied_embeddings].items():
                hit = [one for one in (name, *others) if _matches(pattern, one)]
                if hit and len(hit) <= len(others):
                    left = ", ".join(one for one in (name, *others) if one not in hit)
                    yield f"{field}: {pattern} means {left} too, which is the same matrix (model.tied_embeddings)"


def _declared(config: RunConfig) -> list[str]:
    return [p.name for p in parameters(config.model, Vocabularies(source=1, target=1))]


def _factors(config: RunConfig, frozen: Sequence[str], names: Collection[str]) -> dict[str, float]:
    found = {}
    for name in names:
        own = _names(config, name)
        if not any(_matches(pattern, one) for pattern in frozen for one in own):
            rates = config.training.rates.items()
            hits = [rate for pattern, rate in rates if any(_matches(pattern, one) for one in own)]
            found[name] = hits[-1] if hits else 1.0
    return found


def _problems(config: RunConfig, names: Collection[str]) -> Iterator[str]:
    training = config.training
    fields: dict[str, Sequence[str]] = {"training.freeze": training.freeze, "training.rates": list(training.rates)}
    known = [one for name in names for one in _names(config, name)]
    is_known = True
    for field, patterns in fields.items():
        for pattern in patterns:
            if not any(_matches(pattern, one) for one in known):
                is_known = False
                yield f"{field}: {pattern!r} matches no parameter; the nearest are {_nearest(pattern, known)}"
    if not is_known:
        return
    trained = _factors(config, training.freeze, names).keys()
    if not trained:
        yield f"training.freeze: {', '.join(training.freeze)} is all of the model; leave something to train"
    for pattern in training.rates:
        if trained and not any(_matches(pattern, one) for name in trained for one in _names(config, name)):
            yield f"training.rates: {pattern!r} matches what is frozen alone; leave it out, or freeze less"


def _names(config: RunConfig, name: str) -> tuple[str, ...]:
    """All names of a parameter."""
    return name, *TIED[config.model.tied_embeddings].get(name, ())


def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _nearest(pattern: str, names: Collection[str]) -> str:
    """The most similar of the names and of the modules that they lie in."""
    parts = [name.split(".") for name in names]
    known = list(dict.fromkeys(".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)))
    near = difflib.get_close_matches(pattern.removesuffix(".*"), known, n=NEAREST, cutoff=0.0)
    return ", ".join(near)
