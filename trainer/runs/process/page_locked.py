"""Host memory for copies from a GPU. Imports nothing: a plan asks too."""


def page_locked_bytes(num_bytes: int) -> int:
    """What page-locked host memory for copies from a GPU takes: torch rounds up to a power of two."""
    return 1 << (num_bytes - 1).bit_length() if num_bytes > 0 else 0
