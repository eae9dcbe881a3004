"""How often failed ranks are restarted."""


class Restarts:
    """Counts failures since the last new checkpoint."""

    def __init__(self, limit: int, newest_step: int) -> None:
        """Begin.

        Args:
            limit: restarts without a new checkpoint before giving up.
            newest_step: of the existing checkpoints.
        """
        self.limit = limit
        self.step = newest_step
        """The newest checkpoint's step."""
        self.num_failures = 0
        """Without progress."""

    def may_follow(self, newest_step: int) -> bool:
        """Whether to restart after a failure.

        Args:
            newest_step: of the checkpoints that now exist.
        """
        if newest_step > self.step:
            self.step, self.num_failures = newest_step, 0
        self.num_failures += 1
        return self.num_failures <= self.limit
