"""ZeRO by DeepSpeed, which only this package imports."""

from trainer.engines.deepspeed.engine import DeepSpeedEngine

__all__ = ["DeepSpeedEngine"]
