"""Languages by any of their codes, for scoring, language identification and tags.

Codes are those of ISO 639-1, -2 (both forms) and -3, and of BCP 47 with script and territory, with hyphens or
underscores, in any case: `zh`, `chi`, `zho`, `cmn`, `zho_Hans` and `zh-CN` are the same language. The package
`langcodes` says what codes mean, from Unicode's CLDR and the BCP 47 registry. Any other code is a language of its own.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_ALIASES = {
    "nb": "no",  # CLDR: `no` (Norwegian) means Bokmål by default
    "ns": "nso",  # M2M100's code for Northern Sotho
}
_UNDETERMINED = "und"


@dataclass(kw_only=True, slots=True, frozen=True)
class Language:
    """The meaning of a language code."""

    code: str
    """Shortest code of the language; for the main member of a macrolanguage, the macrolanguage's (`zh` for `cmn`)."""
    macrolanguage: str
    """The macrolanguage in ISO 639-3, such as `zh` for `yue`; equal to `code` if the language is not part of one."""
    script: str | None
    """ISO 15924 code of the script: the one in the code, else the language's usual one; None if unknown."""
    territory: str | None
    """The territory in the code, else that of most speakers; None if unknown."""
    names_territory: bool
    """Whether the code itself names the territory."""


@functools.lru_cache(maxsize=4096)
def language(code: str) -> Language:
    """The meaning of a code."""
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES, NORMALIZED_MACROLANGUAGES

    parsed = _parsed(code)
    if parsed is None:
        own = code.strip().replace("_", "-").lower()
        return Language(code=own, macrolanguage=own, script=None, territory=None, names_territory=False)
    name = str(parsed.language)
    # For a language that is not in CLDR, `maximize` would return the defaults of any language: those of English.
    tags = (tag for tag in parsed.broader_tags() if not tag.startswith(_UNDETERMINED))
    likely = parsed.maximize() if any(tag in LIKELY_SUBTAGS for tag in tags) else parsed
    short = NORMALIZED_MACROLANGUAGES.get(name, name)
    short = _ALIASES.get(short, short)
    return Language(
        code=short,
        macrolanguage=MACROLANGUAGES.get(name, short),
        script=likely.script,
        territory=parsed.territory or likely.territory,
        names_territory=parsed.territory is not None,
    )


def is_known(code: str) -> bool:
    """Whether a code is one of a language."""
    return _parsed(code) is not None


def _parsed(code: str) -> Any:
    """What `langcodes` says of a code; None if it is not one."""
    import langcodes  # imported late: its tables take 50 ms, and most commands need no language

    text = code.strip().replace("_", "-")
    try:
        parsed = langcodes.Language.get(_ALIASES.get(text.lower(), text))
        return parsed if parsed.language is not None and parsed.is_valid() else None
    except (ValueError, LookupError):
        return None


def same_language(code: str, codes: Iterable[str]) -> list[str]:
    """The codes among `codes` that mean the same as `code`: the same language in the same script.

    Only the best matches are returned: the code itself, else codes with the same territory (`zh-TW` matches `zho_Hant`,
    not `zh-HK`), else codes without a territory, else members of the macrolanguage `code` (`ps` matches `pbt_Arab`). If
    there are several, the code is ambiguous, and the caller must refuse it.
    """
    there = list(codes)
    if code in there:
        return [code]
    asked = language(code)
    meanings = [(one, language(one)) for one in there]
    written = [(one, other) for one, other in meanings if asked.script is None or other.script in (asked.script, None)]
    same = [(one, other) for one, other in written if other.code == asked.code]
    for kept in (
        [one for one, other in same if other == asked],
        [one for one, other in same if other.territory == asked.territory],
        [one for one, other in same if not (other.names_territory and asked.names_territory)],
        [one for one, other in written if other.macrolanguage == asked.code != other.code],
    ):
        if kept:
            return kept
    return []
