"""What trains a model: DeepSpeed, batches for it, and what an optimizer keeps."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.engines.deepspeed.engine import DeepSpeedEngine as Engine
else:
    Engine = Any  # for annotations alone: DeepSpeed takes seconds to import

__all__ = ["Engine"]
