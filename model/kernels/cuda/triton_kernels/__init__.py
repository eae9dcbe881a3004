"""Triton kernels, imported only on a GPU or under Triton's interpreter: elsewhere Triton may be missing.

Triton compiles a kernel anew for an integer that is 1 or a multiple of 16, and for a tensor that begins at a multiple
of 16 bytes. Numbers that change from batch to batch or from layer to layer are `do_not_specialize`, and tensors that
may be parts of others `do_not_specialize_on_alignment`: no rank stops in the middle of a run to compile, and the others
with it.
"""
