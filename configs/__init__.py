"""A run's configuration as typed dataclasses, and how it is read.

Names are imported when they are asked for: `configs.process`, which every process imports first, must stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs.components import Optimizer, Schedule
    from configs.corpus import CorpusFiles
    from configs.data import (
        UNDETERMINED,
        CleaningSection,
        DatasetSource,
        PhaseSection,
        PrepareSection,
        StreamSection,
        TokenizerSection,
    )
    from configs.errors import ConfigError, UserError
    from configs.evaluation import BleuTokenizer, EarlyStoppingSection, EvaluationSection, HeldOutSection, SearchSection
    from configs.load import load_run, load_saved, preset_model, save_run
    from configs.model import ModelSection
    from configs.plugins import OtherPluginError, Plugin
    from configs.reading.shipped import find_preset
    from configs.schema import (
        CheckpointSection,
        EngineSection,
        RunConfig,
        StabilitySection,
        SupervisionSection,
        TrainingSection,
    )

__all__ = [
    "UNDETERMINED",
    "BleuTokenizer",
    "CheckpointSection",
    "CleaningSection",
    "ConfigError",
    "CorpusFiles",
    "DatasetSource",
    "EarlyStoppingSection",
    "EngineSection",
    "EvaluationSection",
    "HeldOutSection",
    "ModelSection",
    "Optimizer",
    "OtherPluginError",
    "PhaseSection",
    "Plugin",
    "PrepareSection",
    "RunConfig",
    "Schedule",
    "SearchSection",
    "StabilitySection",
    "StreamSection",
    "SupervisionSection",
    "TokenizerSection",
    "TrainingSection",
    "UserError",
    "find_preset",
    "load_run",
    "load_saved",
    "preset_model",
    "save_run",
]

_MODULES = {
    "UNDETERMINED": "configs.data",
    "BleuTokenizer": "configs.evaluation",
    "CheckpointSection": "configs.schema",
    "CleaningSection": "configs.data",
    "ConfigError": "configs.errors",
    "CorpusFiles": "configs.corpus",
    "DatasetSource": "configs.data",
    "EarlyStoppingSection": "configs.evaluation",
    "EngineSection": "configs.schema",
    "EvaluationSection": "configs.evaluation",
    "HeldOutSection": "configs.evaluation",
    "ModelSection": "configs.model",
    "Optimizer": "configs.components",
    "OtherPluginError": "configs.plugins",
    "PhaseSection": "configs.data",
    "Plugin": "configs.plugins",
    "PrepareSection": "configs.data",
    "RunConfig": "configs.schema",
    "Schedule": "configs.components",
    "SearchSection": "configs.evaluation",
    "StabilitySection": "configs.schema",
    "StreamSection": "configs.data",
    "SupervisionSection": "configs.schema",
    "TokenizerSection": "configs.data",
    "TrainingSection": "configs.schema",
    "UserError": "configs.errors",
    "find_preset": "configs.reading.shipped",
    "load_run": "configs.load",
    "load_saved": "configs.load",
    "preset_model": "configs.load",
    "save_run": "configs.load",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
