"""The schedule that stays at the peak."""

from typing_extensions import override

from configs.components import Schedule, component


@component("schedule", "constant")
class Constant(Schedule):
    """The peak, for good."""

    @override
    def factor(self, update: int, last: int) -> float:
        return 1.0
