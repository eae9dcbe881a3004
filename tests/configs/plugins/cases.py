"""One component of each family as somebody else would write it, each in a file of its own outside of the repository."""

from tests.configs.plugins.case import Case
from tests.configs.plugins.cases_of_models import PARTS

FILTER = '''
from configs.components import DroppingFilter, component
from configs.fields import Positive


@component("filter", "their_few_words")
class FewWords(DroppingFilter):
    """Drops pairs whose source has too few words."""

    at_least: Positive = 2

    def find(self, sources, targets):
        return [row for row, source in enumerate(sources) if len(source.split()) < self.at_least]
'''
METRIC = '''
from types import SimpleNamespace

from configs.components import Metric, component
from configs.fields import PositiveFloat


class LengthRatio:
    def __init__(self, scale):
        self.scale = scale

    def corpus_score(self, hypotheses, references):
        lengths = [sum(len(line) for line in lines) for lines in (hypotheses, references[0])]
        return SimpleNamespace(score=self.scale * lengths[0] / lengths[1])

    def get_signature(self):
        return f"their_length_ratio|scale:{self.scale:g}"


@component("metric", "their_length_ratio")
class LengthRatioMetric(Metric):
    """Characters of the translations for each of the references'."""

    scale: PositiveFloat = 1.0

    def build(self, text):
        return LengthRatio(self.scale)
'''
MODIFIER = '''
from configs.components import TextModifier, component
from configs.fields import Positive


@component("modifier", "their_first_words")
class FirstWords(TextModifier):
    """The first words of both sides."""

    words: Positive = 3

    def change(self, source, target, draws):
        return tuple(" ".join(text.split()[: self.words]) for text in (source, target))
'''
OPTIMIZER = '''
from configs.components import Optimizer, component
from configs.fields import Probability


@component("optimizer", "their_momentum")
class Momentum(Optimizer):
    """Stochastic gradient descent with momentum (Polyak, 1964)."""

    states = ("momentum_buffer",)
    momentum: Probability = 0.9

    def build(self, groups):
        import torch

        return torch.optim.SGD(list(groups), lr=0.0, momentum=self.momentum)
'''
READER = '''
import gzip

from configs.components import Reader, component
from configs.fields import Positive


@component("reader", "their_copies")
class Copies(Reader):
    """Each line so many times, with itself as its translation."""

    times: Positive = 1

    def rows(self, files):
        with gzip.open(files.paths[0], "rt") as lines:
            for line in lines:
                yield from [(line, line)] * self.times
'''
SCHEDULE = '''
from configs.components import Schedule, component
from configs.fields import Positive


@component("schedule", "their_halves")
class Halves(Schedule):
    """Half the rate after so many updates."""

    every: Positive = 10

    def factor(self, update, last):
        return 0.5 ** (update // self.every)
'''
TRACKER = '''
import json

from configs.components import Tracker, component
from configs.fields import Positive


class Writer:
    def __init__(self, path, indent):
        self.path, self.indent, self.rows = path, indent, []

    def write(self, step, figures, samples=()):
        self.rows += [[group, step] for group in ("train", "valid") if f"{group}/loss" in figures]

    def event(self, step, figures):
        pass

    def close(self):
        self.path.write_text(json.dumps(self.rows, indent=self.indent))


@component("tracker", "their_json")
class Json(Tracker):
    """Which steps there were, as JSON."""

    indent: Positive = 1

    def open(self, folder, *, config, resume_step):
        return Writer(folder / "tracked.json", self.indent)
'''
CASES = {
    **PARTS,
    "filter": Case(
        code=FILTER,
        chosen={"prepare": {"filters": [{"kind": "their_few_words", "at_least": 5}]}},
    ),
    "metric": Case(
        code=METRIC,
        chosen={"evaluation": {"metrics": ["bleu", {"kind": "their_length_ratio", "scale": 100.0}]}},
    ),
    "modifier": Case(
        code=MODIFIER,
        chosen={"stream": {"augment": [{"kind": "their_first_words", "words": 2, "probability": 1.0}]}},
    ),
    "optimizer": Case(
        code=OPTIMIZER,
        chosen={"optimizer": {"kind": "their_momentum", "lr": 0.1, "momentum": 0.5}},
    ),
    "reader": Case(
        code=READER,
        chosen={"prepare": {"test": {"files": ["test.en.gz"], "reader": {"kind": "their_copies", "times": 2}}}},
    ),
    "schedule": Case(
        code=SCHEDULE,
        chosen={"schedule": {"kind": "their_halves", "warmup_updates": 2, "every": 3}},
    ),
    "tracker": Case(
        code=TRACKER,
        chosen={"trackers": [{"kind": "their_json", "indent": 3}]},
    ),
}
