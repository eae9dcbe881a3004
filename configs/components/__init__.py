"""Components, which a configuration chooses by kind: the registry, and the base class of each family."""

from configs.components.filter import Change, ChangingFilter, Corpus, DroppingFilter, Filter, Find
from configs.components.metric import Lines, Metric, ScoredText, Scoring
from configs.components.modifier import Draws, MergingModifier, Modifier, SubwordModifier, TextModifier
from configs.components.optimizer import Optimizer
from configs.components.registry import Choice, Component, choice_of, component, item_of, kinds, make, unknown
from configs.components.sampler import Sampler
from configs.components.schedule import Schedule
from configs.components.tracker import Samples, Tracker, Writer

__all__ = [
    "Change",
    "ChangingFilter",
    "Choice",
    "Component",
    "Corpus",
    "Draws",
    "DroppingFilter",
    "Filter",
    "Find",
    "Lines",
    "MergingModifier",
    "Metric",
    "Modifier",
    "Optimizer",
    "Sampler",
    "Samples",
    "Schedule",
    "ScoredText",
    "Scoring",
    "SubwordModifier",
    "TextModifier",
    "Tracker",
    "Writer",
    "choice_of",
    "component",
    "item_of",
    "kinds",
    "make",
    "unknown",
]
