"""Which of sacreBLEU's tokenisers is taken, and what is said where it cannot be."""

from pathlib import Path

import pytest
from sacrebleu import utils

from configs import UserError
from configs.components import ScoredText, make
from tests.conftest import Refused
from tests.zeromt.made import make_tokenizer
from trainer.metrics.common import choose
from trainer.metrics.scoring import Scorer

CHINESE = ["zh", "chi", "cmn", "zho_Hans", "zho_Hant", "zh-CN", "ZH_tw", "yue", "wuu", "lzh"]
CHOICES = {
    **dict.fromkeys(CHINESE, "zh"),
    **dict.fromkeys(["ja", "jpn", "jpn_Jpan", "ja-JP"], "ja-mecab"),
    **dict.fromkeys(["ko", "kor", "kor_Hang", "ko_KR"], "ko-mecab"),
    **dict.fromkeys(["th", "tha_Thai", "lo", "khm", "my", "jv_Java"], "char"),
    **dict.fromkeys(["fr", "fra_Latn", "jv", "und", "klingon", "zho_Latn", "nan_Latn"], "13a"),
}


def scorer(tokenizer: str) -> Scorer:
    return Scorer([make("metric", "bleu")], ScoredText(target_language="fr", tokenizer=tokenizer))


@pytest.mark.parametrize(("code", "expected"), CHOICES.items())
def test_auto_follows_the_language(code: str, expected: str) -> None:
    assert choose("auto", code) == expected
    assert choose("char", code) == "char"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sacreBLEU looks for its models."""
    monkeypatch.setattr(utils, "SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))

    def download(*_: object) -> None:
        pytest.fail("it fetches the model")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", download)
    return tmp_path / "sacrebleu" / "models"


def test_a_model_that_is_not_there(models: Path) -> None:
    with pytest.raises(UserError, match=r"needs a model, and .*/models/flores200sacrebleuspm is not there; download"):
        scorer("flores200")
    models.mkdir(parents=True)
    (models / "flores200sacrebleuspm").write_text("<html>404</html>")
    with pytest.raises(UserError, match=r"^evaluation\.tokenizer: 'flores200' cannot be used: "):
        scorer("flores200")
    (models / "flores200sacrebleuspm").write_bytes(make_tokenizer().files()["tokenizer.model"])
    assert "tok:flores200" in scorer("flores200").signatures["bleu"]


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        ("13b", "--tokenizer: there is no tokenizer of sacreBLEU '13b'; did you mean 13a?"),
        ("flores200", "--tokenizer: 'flores200' needs a model, and "),
        ("ja-mecab", "--tokenizer: 'ja-mecab' cannot be used: "),
    ],
)
def test_evaluate_refuses_before_it_reads_the_run(
    tokenizer: str, said: str, models: Path, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    (tmp_path / "text").write_text("a\n")
    assert refused("evaluate", ".", "--source", "text", "--reference", "text", "--tokenizer", tokenizer).startswith(
        said
    )
