"""ZeRO by DeepSpeed, which only this package imports."""
