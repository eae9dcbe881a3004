"""The command-line arguments of every command, checked as far as possible without reading the configuration."""

from launcher.options.comparing import add_compare, add_report
from launcher.options.looking import add_batch, add_diff, add_replay
from launcher.options.parser import Parser
from launcher.options.running import (
    add_completion,
    add_config,
    add_device,
    add_doctor,
    add_inspect,
    add_launch_local,
    add_log,
    add_prepare,
    add_status,
    add_stop,
    add_train,
)
from launcher.options.translating import add_evaluate, add_translate
from launcher.options.weights import (
    EXPORT_DTYPES,
    EXPORT_FORMATS,
    EXPORT_QUANTIZATIONS,
    add_average,
    add_export,
    add_import,
)

__all__ = [
    "EXPORT_DTYPES",
    "EXPORT_FORMATS",
    "EXPORT_QUANTIZATIONS",
    "Parser",
    "add_average",
    "add_batch",
    "add_compare",
    "add_completion",
    "add_config",
    "add_device",
    "add_diff",
    "add_doctor",
    "add_evaluate",
    "add_export",
    "add_import",
    "add_inspect",
    "add_launch_local",
    "add_log",
    "add_prepare",
    "add_replay",
    "add_report",
    "add_status",
    "add_stop",
    "add_train",
    "add_translate",
]
