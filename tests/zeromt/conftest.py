"""What tests of the core have: tokenizers of made-up text, a trained run, the command line beside a pretender."""

from tests.launcher.conftest import workplace
from tests.trainer.conftest import place, trained
from tests.trainer.inference.conftest import joint, separate

__all__ = ["joint", "place", "separate", "trained", "workplace"]
