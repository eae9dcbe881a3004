"""The schedule that stays at the peak."""

from configs.components import Schedule, component


@component("schedule", "constant")
class Constant(Schedule):
    """The peak, for good."""

    def factor(self, update: int, last: int) -> float:
        """See Schedule."""
        return 1.0
