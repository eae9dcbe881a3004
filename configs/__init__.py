"""A run's configuration as typed dataclasses, and how it is read."""

from configs.components import Optimizer, Schedule
from configs.data import (
    UNDETERMINED,
    CleaningSection,
    CorpusFiles,
    DatasetSource,
    PhaseSection,
    PrepareSection,
    StreamSection,
    TokenizerSection,
)
from configs.errors import ConfigError, UserError
from configs.evaluation import BleuTokenizer, EarlyStoppingSection, EvaluationSection, HeldOutSection, SearchSection
from configs.load import load_run, load_saved, model_section, preset_model, save_run
from configs.model import ModelSection
from configs.plugins import OtherPluginError, Plugin, PluginError
from configs.reading.shipped import find_config, find_preset
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
    "PluginError",
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
    "find_config",
    "find_preset",
    "load_run",
    "load_saved",
    "model_section",
    "preset_model",
    "save_run",
]
