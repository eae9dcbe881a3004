"""What of a model is trained: patterns of parameters' names that are not (`training.freeze`).

A pattern is a name with the wildcards of a shell, of which `*` stands for dots too. It also stands for all that lies in
what it names: `encoder.layers.0` for that layer, not for the eleventh. A matrix that is tied has several names, any of
which will do.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from configs import RunConfig, UserError
from model.flops import Parameter, Vocabularies, parameters

TIED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "three-way": {"source_embedding.tokens.weight": ("target_embedding.tokens.weight", "output.weight")},
    "decoder": {"target_embedding.tokens.weight": ("output.weight",)},
    "none": {},
}
"""By `model.tied_embeddings`: the other names of a matrix that is listed at its first use."""


def trained(config: RunConfig, phase: int | None = None, names: Collection[str] | None = None) -> list[str]:
    """The names of the parameters that are trained.

    Args:
        config: of the run.
        phase: number of the phase, from 0; None in a run without.
        names: of the model's parameters; by default those of the configuration's model.

    Raises:
        UserError: a pattern matches nothing, or nothing is left to train.
    """
    if names is None:
        names = [p.name for p in parameters(config.model, Vocabularies(source=1, target=1))]
    if (problem := next(_problems(config, names), None)) is not None:
        raise UserError(problem)
    return _left(config, _frozen(config, phase), names)


def most_trained(config: RunConfig, listed: Sequence[Parameter]) -> Collection[str]:
    """Names of what is trained in the phase that trains most.

    Args:
        config: of the run.
        listed: the model's parameters.

    Raises:
        UserError: see `trained`.
    """
    sizes = {p.name: p.size for p in listed}
    numbers = range(len(config.phases)) if config.phases else [None]
    return max((trained(config, number, sizes) for number in numbers), key=lambda one: sum(sizes[name] for name in one))


def tied(config: RunConfig) -> Iterator[str]:
    """A line for each pattern that freezes a matrix by one of several names."""
    for field, patterns in _fields(config).items():
        for pattern in patterns:
            for name, others in TIED[config.model.tied_embeddings].items():
                hit = [one for one in (name, *others) if _matches(pattern, one)]
                if hit and len(hit) <= len(others):
                    left = ", ".join(one for one in (name, *others) if one not in hit)
                    yield f"{field}: {pattern} means {left} too, which is the same matrix (model.tied_embeddings)"


def _frozen(config: RunConfig, phase: int | None) -> Sequence[str]:
    """The patterns of what a phase leaves as it is."""
    own = None if phase is None or phase >= len(config.phases) else config.phases[phase].freeze
    return config.training.freeze if own is None else own


def _fields(config: RunConfig) -> dict[str, Sequence[str]]:
    """The patterns by the field that they stand in."""
    own = {f"phases.{number}.freeze": phase.freeze or [] for number, phase in enumerate(config.phases)}
    return {"training.freeze": config.training.freeze, **own}


def _left(config: RunConfig, frozen: Sequence[str], names: Collection[str]) -> list[str]:
    """The names of what is not frozen."""
    return [
        name for name in names if not any(_matches(pattern, one) for pattern in frozen for one in _names(config, name))
    ]


def _problems(config: RunConfig, names: Collection[str]) -> Iterator[str]:
    known = [one for name in names for one in _names(config, name)]
    is_known = True
    for field, patterns in _fields(config).items():
        for pattern in patterns:
            if not any(_matches(pattern, one) for one in known):
                is_known = False
                yield f"{field}: {pattern!r} matches no parameter; the nearest are {_nearest(pattern, known)}"
    if not is_known:
        return
    for number in range(len(config.phases)) if config.phases else [None]:
        if not _left(config, _frozen(config, number), names):
            is_own = number is not None and config.phases[number].freeze is not None
            field = f"phases.{number}.freeze" if is_own else "training.freeze"
            yield f"{field}: {', '.join(_frozen(config, number))} is all of the model; leave something to train"


def _names(config: RunConfig, name: str) -> tuple[str, ...]:
    """All names of a parameter."""
    return name, *TIED[config.model.tied_embeddings].get(name, ())


def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _nearest(pattern: str, names: Collection[str]) -> str:
    """The three most similar of the names and of the modules that they lie in."""
    parts = [name.split(".") for name in names]
    known = list(dict.fromkeys(".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)))
    near = difflib.get_close_matches(pattern.removesuffix(".*"), known, cutoff=0.0)
    return ", ".join(near)
