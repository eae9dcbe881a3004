"""Kernels in Triton, imported where a GPU wants them or under its interpreter: elsewhere there may be no triton."""
