"""What in a line is no language and is to be copied: markup, placeholders, URLs and e-mail addresses."""

import re
from collections.abc import Callable, Iterator

MARKUP = re.compile(
    r"""</?[A-Za-z][^<>]*> | <[^<>\s]*>                                             # <b>, <a href="x">, <name1>
      | &\#?\w+;                                                                    # &amp;
      | \$?\{++[^{}]*\}+                                                            # {username}, ${x}, {{ user name }}
      | %(?:\([^()]*\)|\d+\$)?[-+\#0]*\d*(?:\.\d+)?(?:hh?|ll?)?[A-Za-z](?![^\W_])   # %s, %(count)s, %1$d
    """,
    re.VERBOSE,
)
"""Tags, entities and placeholders, without what is between two tags."""
ADDRESS = re.compile(
    r"""(?<!\w)[A-Za-z][\w+.-]*+://\S*[\w/=&\#-]                                    # https://example.org/page
      | (?<!\w)www\.\S*[\w/=&\#-]
      | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+                                   # info@example.org
    """,
    re.VERBOSE,
)
"""URLs and e-mail addresses, without the punctuation behind them."""
_CODE = re.compile(f"{MARKUP.pattern}|{ADDRESS.pattern}", re.VERBOSE)
_SIGN = re.compile(r"[\d<>{}%@\\/_=#$&*|~^+]|[.:](?=[^\W\d_])")


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where markup, placeholders and addresses are, in order."""
    return (match.span() for match in _CODE.finditer(text))


def words(text: str) -> list[tuple[str, bool]]:
    """The words between spaces, each with whether some of it is markup, a placeholder or an address."""
    spans, flagged, start = list(code_spans(text)), [], 0
    for word in text.split(" "):
        end = start + len(word)
        flagged.append((word, any(start < behind and before < end for before, behind in spans)))
        start = end + 1
    return flagged


def looks_odd(word: str) -> bool:
    """Whether a word has what words of a language have not: brackets of tags, a digit, a dot before a letter."""
    return _SIGN.search(word) is not None


def around_code(text: str, change: Callable[[str], str]) -> str:
    """The text with what is between markup, placeholders and addresses changed."""
    parts, done = [], 0
    for start, end in code_spans(text):
        parts += [change(text[done:start]), text[start:end]]
        done = end
    return "".join([*parts, change(text[done:])])
