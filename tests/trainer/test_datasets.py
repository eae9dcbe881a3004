from pathlib import Path

import pytest

from configs import CorpusFiles, PrepareSection, TokenizerSection, UserError, load_run
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from trainer.datasets import check_lengths


def test_pairs_that_are_too_long_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("a cat\tun chat\n" * 9 + "a cat\t" + 40 * "un chat " + "\n")
    tokenizer = TokenizerSection(vocab_size=20, threads=1)
    train = CorpusFiles(tsv=[str(tmp_path / "text.tsv")])
    prepare.run(PrepareSection(output=str(tmp_path / "data"), train=train, tokenizer=tokenizer))
    dataset = Dataset.load(tmp_path / "data")
    longest = int(dataset.lengths.max())
    stream = f"stream.datasets=[{{path: '{tmp_path / 'data'}'}}]"
    too_few = [stream, f"model.max_positions={longest}"]
    with pytest.raises(UserError, match=rf"max_positions: {longest} is less than the {longest + 1} of the longest tar"):
        check_lengths([dataset], load_run("debug", [*too_few, "stream.target_tokens=4096"]))
    check_lengths([dataset], load_run("debug", [*too_few, f"stream.target_tokens={longest}"]))
    check_lengths([dataset], load_run("debug", [stream, f"model.max_positions={longest + 1}"]))
