"""Triton kernels, imported only on a GPU or under Triton's interpreter: elsewhere Triton may be missing."""
