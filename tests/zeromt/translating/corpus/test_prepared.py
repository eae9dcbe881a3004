"""What a merge writes is parallel text: a corpus and several translations of each line become a dataset."""

from pathlib import Path

from configs import CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.zeromt.translating.corpus.conftest import Translate


def test_several_candidates_of_a_line_are_pairs(
    translate: Translate, run: str, lines: list[str], tmp_path: Path
) -> None:
    given = ("-i", "in.en", "-o", "out", "--chunk-lines", "7", "--candidates", "3", "--beam", "3")
    assert translate(run, *given, "--part", "1/1") == 0
    assert translate(run, *given, "--merge", "--choose", "2", "--to", "two.txt.zst") == 0
    tokenizer = TokenizerSection(path=str(next((Path(run) / "checkpoints").glob("step-*"))))
    train = CorpusFiles(source=["two.source.txt.zst"], target=["two.txt.zst"])
    prepare.run(PrepareSection(output=str(tmp_path / "taught"), root=str(tmp_path), train=train, tokenizer=tokenizer))
    taught = Dataset.load(tmp_path / "taught")
    assert taught.num_pairs == 2 * (24 - 3 - 1)
    assert (taught.index.dropped["empty"], taught.index.dropped["too long"]) == (3, 2)  # both of the long line
