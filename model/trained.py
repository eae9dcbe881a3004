"""What of a model is trained: patterns of parameters' names that are not (`training.freeze`).

A pattern is a name with the wildcards of a shell; `*` matches dots too. It also matches all that lies in
what it names: `encoder.layers.0` for that layer, not for the eleventh. A matrix that is tied has several names, any of
which will do.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

from configs import RunConfig, UserError
from model.flops import Vocabularies, parameters

TIED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "three-way": {"source_embedding.tokens.weight": ("target_embedding.tokens.weight", "output.weight")},
    "decoder": {"target_embedding.tokens.weight": ("output.weight",)},
    "none": {},
}
"""By `model.tied_embeddings`: the other names of a matrix that is listed at its first use."""


def trained(config: RunConfig, names: Collection[str] | None = None) -> list[str]:
    """The names of the parameters that are trained.

    Args:
        config: of the run.
        names: of the model's parameters; by default those of the configuration's model.

    Raises:
        UserError: a pattern matches nothing, or nothing is left to train.
    """
    if names is None:
        names = [p.name for p in parameters(config.model, Vocabularies(source=1, target=1))]
    patterns = config.training.freeze
    known = [one for name in names for one in _names(config, name)]
    for pattern in patterns:
        if not any(_matches(pattern, one) for one in known):
            near = _nearest(pattern, known)
            raise UserError(f"training.freeze: {pattern!r} matches no parameter; the nearest are {near}")
    left = [
        name
        for name in names
        if not any(_matches(pattern, one) for pattern in patterns for one in _names(config, name))
    ]
    if not left:
        raise UserError(f"training.freeze: {', '.join(patterns)} is all of the model; leave something to train")
    return left


def tied(config: RunConfig) -> Iterator[str]:
    """A line for each pattern that freezes a matrix by one of several names."""
    for pattern in config.training.freeze:
        for name, others in TIED[config.model.tied_embeddings].items():
            hit = [one for one in (name, *others) if _matches(pattern, one)]
            if hit and len(hit) <= len(others):
                left = ", ".join(one for one in (name, *others) if one not in hit)
                yield f"training.freeze: {pattern} means {left} too, which is the same matrix (model.tied_embeddings)"


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
