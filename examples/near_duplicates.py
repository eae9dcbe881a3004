"""Writes a parallel corpus without near duplicates, to run before `zeromt prepare`. Needs `pip install rensa` (0.5).

    python examples/near_duplicates.py corpus.en.gz corpus.fr.gz clean.en.gz clean.fr.gz --similarity 0.8

A pair is left out if an earlier one that was kept is so similar: the fraction of runs of five characters that both have
in common (Jaccard), of both sides together, ignoring case, width and white space. It is estimated by MinHash (Broder,
1997) of 128 numbers, which stay in memory. Files that end in .gz are compressed.
"""

import argparse
import gzip
import unicodedata
from typing import Any

from rensa import RMinHash, RMinHashDeduplicator

RUN, NUMBERS, BANDS, SEED = 5, 128, 32, 1


def opened(path: str, mode: str) -> Any:
    return (gzip.open if path.endswith(".gz") else open)(path, mode, encoding="utf-8", newline="\n")


def runs(side: str, line: str) -> list[str]:
    text = " ".join(unicodedata.normalize("NFKC", line).casefold().split())
    return [side + text[begin : begin + RUN] for begin in range(max(1, len(text) - RUN + 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs=4, metavar="FILE", help="source, target, and where to write each")
    parser.add_argument(
        "--similarity", type=float, default=0.8, help="drop one of two pairs that are as similar as this"
    )
    options = parser.parse_args()
    source, target, *cleaned = (
        opened(path, mode) for path, mode in zip(options.files, ("rt", "rt", "wt", "wt"), strict=True)
    )
    seen = RMinHashDeduplicator(options.similarity, NUMBERS, use_lsh=True, num_bands=BANDS, seed=SEED)
    number = kept = 0
    with cleaned[0], cleaned[1]:
        for number, pair in enumerate(zip(source, target, strict=True), start=1):
            signature = RMinHash(num_perm=NUMBERS, seed=SEED)
            signature.update(runs("s", pair[0]) + runs("t", pair[1]))
            if seen.add(str(number), signature):
                kept += 1
                for file, line in zip(cleaned, pair, strict=True):
                    file.write(line)
    print(f"{number - kept:,} of {number:,} pairs were near duplicates of an earlier one")


if __name__ == "__main__":
    main()
