"""ZeRO by DeepSpeed: the only package that imports it."""

from trainer.engines.deepspeed.engine import DeepSpeedEngine

__all__ = ["DeepSpeedEngine"]
