"""Text that repeats itself with an edit, as crawled text does, and how similar two lines are, by plain sets."""

import random
import re
import unicodedata

CJK = re.compile("[\u2e80-\U0010ffff]")


def shingles(line: str) -> set[str]:
    """The definition in docs/preprocessing.md, read by itself."""
    text = " ".join(unicodedata.normalize("NFKC", line).casefold().split())
    sizes = [3 if CJK.match(character) else 5 for character in text]
    return {text[i : i + n] for i, n in enumerate(sizes) if i + n <= len(text) or i == 0}


def similarity(line: str, other: str) -> float:
    """Jaccard's."""
    one, two = shingles(line), shingles(other)
    return len(one & two) / max(1, len(one | two))


def edited(line: str, draw: random.Random) -> str:
    """One of the ways in which crawled text repeats itself."""
    words, at = line.split(), draw.randrange(max(1, len(line) - 1))
    half = len(words) // 2
    return draw.choice(
        [
            line.upper(),
            f"{line} !",
            line[:at] + line[at + 1 :],
            line[:at] + draw.choice("aeiou") + line[at:],
            f"{draw.choice(['Well, ', '- ', '12. ', 'He said: '])}{line}",
            " ".join(words[:-1]) or line,
            " ".join([*words[:half], draw.choice(words), *words[half + 1 :]]),
            line.replace(" ", "\u00a0 "),
        ]
    )
