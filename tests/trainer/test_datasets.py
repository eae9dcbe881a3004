"""Datasets that do not suit a run's model are refused, and language tags stand where the model has them."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from configs import CorpusFiles, DatasetSource, PrepareSection, TokenizerSection, UserError, load_run, load_saved
from configs.load import save_run
from data_pipeline.preparation import prepare
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.reader import StreamReader
from tests.forked import Forked
from tests.small import small_runs
from trainer.datasets import check_lengths, check_prepared, check_tags
from trainer.inference.translation.languages import encode_source, encode_target, own_language_tags
from zeromt.cli.main import main


def test_pairs_that_are_too_long_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("a cat\tun chat\n" * 9 + "a cat\t" + 40 * "un chat " + "\n")
    tokenizer = TokenizerSection(vocab_size=20, threads=1)
    train = CorpusFiles(files=[str(tmp_path / "text.tsv")], reader=Tsv())
    prepare.run(PrepareSection(output=str(tmp_path / "data"), train=train, tokenizer=tokenizer))
    dataset = Dataset.load(tmp_path / "data")
    longest = int(dataset.lengths.max())
    stream = f"stream.datasets=[{{path: '{tmp_path / 'data'}'}}]"
    too_few = [stream, f"model.max_positions={longest}"]
    with pytest.raises(UserError, match=rf"max_positions: {longest} is less than the {longest + 1} of the longest tar"):
        check_lengths([dataset], load_run("debug", [*too_few, "stream.target_tokens=4096"]))
    check_lengths([dataset], load_run("debug", [*too_few, f"stream.target_tokens={longest}"]))
    just = [stream, f"model.max_positions={longest + 1}", "stream.target_tokens=4096"]
    check_lengths([dataset], load_run("debug", just))
    with pytest.raises(UserError, match=r"the 512 of the longest source .*length_multiple=512"):
        check_lengths([dataset], load_run("debug", [*just, "stream.length_multiple=512", "stream.source_tokens=512"]))


@pytest.fixture
def tagged(tmp_path: Path) -> PrepareSection:
    (tmp_path / "text.tsv").write_text("a cat\tun chat\n" * 9 + "a dog\tun chien\n")
    return PrepareSection(
        output=str(tmp_path / "data"),
        source_language="en",
        target_language="fr",
        train=CorpusFiles(files=[str(tmp_path / "text.tsv")], reader=Tsv()),
        valid=CorpusFiles(files=[str(tmp_path / "text.tsv")], reader=Tsv()),
        tokenizer=TokenizerSection(vocab_size=22, threads=1, tags=[">>en<<", ">>fr<<"]),
        tag_both_sides=True,
    )


def test_tags_of_both_sides(tagged: PrepareSection) -> None:
    """Both sides of the shards have them; the held-out text does not, and gets them where it is encoded."""
    prepare.run(tagged)
    dataset = Dataset.load(tagged.output)
    config = load_run("debug", [f"prepare.output={tagged.output}", "prepare.tag_both_sides=true"])
    reader = StreamReader([(dataset, 1.0)], config.stream, seed=1, rank=0, world_size=1)
    batches = [m for m in reader.next_update() if m is not None and len(m.source)]
    reader.close()
    tags = own_language_tags(tagged, dataset.tokenizer)
    assert tags is not None
    assert {int(i) for m in batches for i in m.source[:, 0]} == {tags.source} == {dataset.tokenizer.tag_id(">>en<<")}
    assert {int(i) for m in batches for i in m.target_output[:, 0]} == {tags.target}
    assert dataset.held_out("valid")[0][0] == "a cat"
    lines = ["a cat", "", ">>fr<< un chat"]
    assert [row[:1] for row in encode_source(dataset.tokenizer, lines, tags)] == [[tags.source], [], [tags.target]]
    assert encode_target(dataset.tokenizer, [""], tags) == [[tags.target]]
    check_tags([dataset], config)
    with pytest.raises(UserError, match=r"prepare.tag_both_sides: false, and .* was prepared with true"):
        check_tags([dataset], load_run("debug", [f"prepare.output={tagged.output}"]))


def test_a_section_that_was_changed_afterwards(
    tagged: PrepareSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused with the fields; a run that was begun so goes on, and other data may be taken anew."""
    prepare.run(tagged)
    dataset = Dataset.load(tagged.output)
    config = dataclasses.replace(load_run("debug"), prepare=tagged)
    check_prepared([dataset], config, saved=None, reset=False)
    stale = dataclasses.replace(config, prepare=dataclasses.replace(tagged, max_pieces=99, seed=2))
    said = r"^prepare.max_pieces: 99, the dataset has 512; prepare.seed: 2, the dataset has 1; .* run `zeromt prepare "
    for saved in (None, tagged):
        with pytest.raises(UserError, match=said):
            check_prepared([dataset], stale, saved=saved, reset=False)
    with pytest.raises(UserError, match=r"^prepare.max_pieces: 99, the dataset has 512; /"):
        check_prepared([dataset], stale, saved=dataclasses.replace(tagged, seed=2), reset=False)
    check_prepared([dataset], stale, saved=stale.prepare, reset=False)
    check_prepared([dataset], stale, saved=tagged, reset=True)
    mixture = dataclasses.replace(stale.stream, datasets=[DatasetSource(path=tagged.output)])
    check_prepared([dataset], dataclasses.replace(stale, stream=mixture), saved=None, reset=False)
    monkeypatch.chdir(tmp_path)
    save_run(stale, Path("my.yaml"))
    assert main(["train", "my.yaml", "prepare.max_pieces=98"]) == 2
    said = "run `zeromt prepare my.yaml prepare.max_pieces=98` with another prepare.output"
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_language": "de"}, "prepare.target_language: >>de<<: the tokenizer's tags are >>en<<, >>fr<<"),
        ({"source_language": "de"}, "prepare.source_language: >>de<<"),
    ],
)
def test_languages_without_a_tag(changes: dict[str, str], said: str, tagged: PrepareSection) -> None:
    with pytest.raises(UserError, match=said):
        prepare.run(dataclasses.replace(tagged, **changes))  # type: ignore[arg-type]


def test_languages_are_those_of_the_data(tmp_path: Path, forked: Forked) -> None:
    """Of a run whose `prepare` names its data alone."""
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    whole = (place / "small.yaml").read_text()
    begin, end = whole.index("prepare:"), whole.index("stream:")
    (place / "bare.yaml").write_text(f"{whole[:begin]}prepare: {{output: dataset, max_pieces: 64}}\n{whole[end:]}")
    done = forked.zeromt("train", "bare.yaml", "name=bare", "training.max_updates=1", cwd=place)
    assert done.code == 0, done.err
    saved = load_saved(place / "runs" / "bare" / "checkpoints" / "step-00000001" / "config.yaml").prepare
    assert (saved.source_language, saved.target_language) == ("en", "fr")
