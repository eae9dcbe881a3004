"""Made-up pairs, and what a folder holds."""

from collections.abc import Callable

from configs import PrepareSection

Corpus = Callable[..., PrepareSection]

PAIRS = [(f"the cat number {n} sat", f"le chat numéro {n} assis") for n in range(200)]


def many(count: int) -> list[tuple[str, str]]:
    """Pairs of which about a tenth are there twice."""
    numbers = [n if n % 10 else n // 2 for n in range(count)]
    return [(f"the cat number {n} sat on {n % 7}", f"le chat numéro {n} assis sur {n % 7}") for n in numbers]
