"""torch's Adafactor without starting torch's compiler."""

import torch

from trainer.engines.adamw import NeverCompiled


class Adafactor(NeverCompiled, torch.optim.Adafactor):
    """Adafactor (Shazeer and Stern, 2018): torch's own code, hooks and states."""
