"""Page-locked host memory for copies from a GPU. Imports nothing, as `zeromt plan` uses it too."""


def page_locked_bytes(num_bytes: int) -> int:
    """Bytes that torch allocates for page-locked host memory: it rounds up to a power of two."""
    return 1 << (num_bytes - 1).bit_length() if num_bytes > 0 else 0
