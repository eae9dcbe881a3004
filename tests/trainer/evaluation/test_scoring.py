"""Which of sacreBLEU's tokenisers is taken, and what is said where it cannot be."""

from pathlib import Path
from urllib.error import URLError

import pytest

from tests.conftest import Refused
from trainer.metrics.common import choose

CHINESE = ["zh", "chi", "cmn", "zho_Hans", "zho_Hant", "zh-CN", "ZH_tw", "yue", "wuu", "lzh"]
CHOICES = {
    **dict.fromkeys(CHINESE, "zh"),
    **dict.fromkeys(["ja", "jpn", "jpn_Jpan", "ja-JP"], "ja-mecab"),
    **dict.fromkeys(["ko", "kor", "kor_Hang", "ko_KR"], "ko-mecab"),
    **dict.fromkeys(["th", "tha_Thai", "lo", "khm", "my", "jv_Java"], "char"),
    **dict.fromkeys(["fr", "fra_Latn", "jv", "und", "klingon", "zho_Latn", "nan_Latn"], "13a"),
}


@pytest.mark.parametrize(("code", "expected"), CHOICES.items())
def test_auto_follows_the_language(code: str, expected: str) -> None:
    assert choose("auto", code) == expected
    assert choose("char", code) == "char"


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        ("13b", "--tokenizer: there is no tokenizer of sacreBLEU '13b'; did you mean 13a?"),
        ("flores200", "--tokenizer: 'flores200' cannot be used: <urlopen error no network>"),
        ("ja-mecab", "--tokenizer: 'ja-mecab' cannot be used: "),
    ],
)
def test_evaluate_refuses_before_it_reads_the_run(
    tokenizer: str, said: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where sacreBLEU has to fetch its model, or lacks a package."""

    def download(*_: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", download)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    (tmp_path / "text").write_text("a\n")
    assert refused("evaluate", ".", "--source", "text", "--reference", "text", "--tokenizer", tokenizer).startswith(
        said
    )
