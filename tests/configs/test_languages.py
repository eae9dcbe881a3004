"""Every code of a language means the same."""

import itertools

import pytest

from configs.languages import language, same_language

ALIKE = [
    "zh zho chi cmn zho_Hans cmn_Hans zh-CN ZH_cn zh-Hans",
    "zho_Hant zh-TW zh_Hant cmn-Hant",
    "yue yue_Hant zh-yue",
    "ja jpn jpn_Jpan",
    "fr fra fre fra_Latn fr-FR",
    "de ger deu deu_Latn",
    "pt por por_Latn pt-BR",
    "fa per fas pes pes_Arab",
    "no nb nor nob nob_Latn",
    "my bur mya mya_Mymr",
    "bo tib bod",
    "he iw heb",
    "ms may msa zsm_Latn",
    "lv lav lvs_Latn",
    "ne nep npi_Deva",
    "nso ns",
]
"""ISO 639-1, -2/B, -2/T and -3, with script as NLLB, with territory, and the macrolanguage for its principal member."""
NLLB = ["zho_Hans", "zho_Hant", "yue_Hant", "pbt_Arab", "arb_Arab", "arz_Arab", "nob_Latn", "nno_Latn", "srp_Cyrl"]


@pytest.mark.parametrize("codes", [line.split() for line in ALIKE], ids=lambda codes: str(codes[0]))
def test_codes_of_a_language(codes: list[str]) -> None:
    others = [line.split()[0] for line in ALIKE if line.split() != codes and "zho_Hant" not in line]
    for asked, there in itertools.permutations(codes, 2):
        assert same_language(asked, [*others, there]) == [there], (asked, language(asked), language(there))


@pytest.mark.parametrize(
    ("asked", "there", "matches"),
    [
        ("zh", NLLB, ["zho_Hans"]),
        ("zh_HK", NLLB, ["zho_Hant"]),
        ("ps", NLLB, ["pbt_Arab"]),
        ("ar", NLLB, ["arb_Arab"]),
        ("no", NLLB, ["nob_Latn"]),
        ("nn", NLLB, ["nno_Latn"]),
        ("sr_Latn", NLLB, []),
        ("zh-TW", ["zh"], []),
        ("yue", ["zh"], []),
        ("pt", ["pt-PT", "pt-BR"], ["pt-BR"]),
        ("pt-PT", ["por_Latn", "spa_Latn"], ["por_Latn"]),
        ("pt-PT", ["pt-BR"], []),
        ("pt-AO", ["pt-PT", "pt-BR"], []),
        ("fra", ["fr", "fra"], ["fra"]),
        ("fre", ["fr_FR", "fra_Latn"], ["fra_Latn"]),
        ("klingon", ["Klingon", "tlh"], ["Klingon"]),
        ("formal", ["informal", "fo"], []),
    ],
)
def test_the_best_match(asked: str, there: list[str], matches: list[str]) -> None:
    assert same_language(asked, there) == matches


def test_scripts() -> None:
    codes = "zh zh-TW yue ja th lo km my bo jv jv_Java sr srp_Latn und klingon"
    scripts = "Hans Hant Hant Jpan Thai Laoo Khmr Mymr Tibt Latn Java Cyrl Latn None None"
    assert [str(language(code).script) for code in codes.split()] == scripts.split()
