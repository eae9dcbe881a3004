"""How often ranks that fail are started again."""


class Restarts:
    """Counts the failures since the newest checkpoint advanced."""

    def __init__(self, limit: int, newest_step: int) -> None:
        """Begin.

        Args:
            limit: starts again that bring no new checkpoint, before it is given up.
            newest_step: of the checkpoints that are there.
        """
        self.limit = limit
        self.step = newest_step
        """The newest checkpoint's step."""
        self.num_failures = 0
        """Without progress."""

    def may_follow(self, newest_step: int) -> bool:
        """Whether to start again after a failure.

        Args:
            newest_step: of the checkpoints that are there now.
        """
        if newest_step > self.step:
            self.step, self.num_failures = newest_step, 0
        self.num_failures += 1
        return self.num_failures <= self.limit
