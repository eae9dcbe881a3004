"""What a start is measured by stands where the clock looks for it."""

import importlib
from functools import reduce

from benchmarks.startup.first_update import IMPORTS, PARTS


def test_every_part_of_a_start_is_a_function_that_is_there() -> None:
    for module in ("launcher.commands", *IMPORTS):
        importlib.import_module(module)
    for targets in PARTS.values():
        for target in targets:
            module, _, path = target.partition(":")
            assert callable(reduce(getattr, path.split("."), importlib.import_module(module))), target
