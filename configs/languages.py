"""Languages by any of their codes, for scoring, language identification and tags alike.

ISO 639-1, -2 (both forms) and -3, and BCP 47 with script and territory, with hyphens or underscores, of any case:
`zh`, `chi`, `zho`, `cmn`, `zho_Hans` and `zh-CN` are one. What codes mean comes from `langcodes`, which has it from
Unicode's CLDR and the registry of BCP 47. A code that is none of these is a language of its own.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

_ALIASES = {
    "nb": "no",  # Bokmål is what `no` means where nothing else is said, as CLDR has it
    "ns": "nso",  # of M2M100, which took the letters for Northern Sotho
}
_UNDETERMINED = "und"


@dataclass(kw_only=True, slots=True, frozen=True)
class Language:
    """What a code means."""

    code: str
    """The shortest one of its language; that of the macrolanguage for the member that it stands for (`zh` of `cmn`)."""
    macrolanguage: str
    """What ISO 639-3 counts it under, such as `zh` of `yue`; `code` where that is nothing else."""
    script: str | None
    """ISO 15924: what the code says, or else what the language is usually written in; None where it is unknown."""
    territory: str | None
    """What the code says, or else where most of its speakers are."""
    names_territory: bool
    """Whether the code itself says it."""


@functools.lru_cache(maxsize=4096)
def language(code: str) -> Language:
    """The meaning of a code."""
    import langcodes  # its tables take a twentieth of a second, and most commands ask for no language
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES, NORMALIZED_MACROLANGUAGES

    text = code.strip().replace("_", "-")
    try:
        found = langcodes.Language.get(_ALIASES.get(text.lower(), text))
        is_known = found.language is not None and found.is_valid()
    except (ValueError, LookupError):
        is_known = False
    if not is_known:
        own = text.lower()
        return Language(code=own, macrolanguage=own, script=None, territory=None, names_territory=False)
    name = str(found.language)
    # What is likely of a language that Unicode says nothing of is what is likely of any: English.
    tags = (tag for tag in found.broader_tags() if not tag.startswith(_UNDETERMINED))
    likely = found.maximize() if any(tag in LIKELY_SUBTAGS for tag in tags) else found
    short = NORMALIZED_MACROLANGUAGES.get(name, name)
    short = _ALIASES.get(short, short)
    return Language(
        code=short,
        macrolanguage=MACROLANGUAGES.get(name, short),
        script=likely.script,
        territory=found.territory or likely.territory,
        names_territory=found.territory is not None,
    )


def same_language(code: str, codes: Iterable[str]) -> list[str]:
    """Those of some codes that mean the same as one: the same language in the same script.

    Better matches hide others: the code itself, then the same territory (`zh-TW` is `zho_Hant`, not `zh-HK`), then one
    that names none. Where nothing else is left, a macrolanguage stands for its members (`ps` for `pbt_Arab`). More than
    one is an ambiguity, for whoever asks to refuse.
    """
    there = list(codes)
    if code in there:
        return [code]
    asked = language(code)
    found = [(one, language(one)) for one in there]
    written = [(one, other) for one, other in found if _is_one(other.script, asked.script)]
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


def _is_one(script: str | None, other: str | None) -> bool:
    return script == other or script is None or other is None
