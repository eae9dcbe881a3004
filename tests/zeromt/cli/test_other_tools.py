"""What people type who come from other programs is answered with what it is here, in one line."""

import re
from pathlib import Path

import pytest

from configs import other_tools
from configs.reading import meanings
from launcher.options import parser
from tests.conftest import Refused
from zeromt.cli.main import COMMANDS, main

LIMITS = "stream.source_tokens and stream.target_tokens"
ROWS = [
    ("train debug training.max_steps=1000", "training.max_steps: unknown key; here it is training.max_updates"),
    ("train debug stream.batch_size=64", LIMITS),
    ("train debug batch_size=64", "(padded tokens of a micro-batch, not sentences)"),
    ("train debug epochs=10", "here it is training.max_epochs"),
    ("train debug num_train_epochs=10", "here it is training.max_epochs"),
    ("train debug optimizer.learning_rate=1", "here it is optimizer.lr"),
    ("train debug lr=1", "did you mean optimizer.lr?"),
    ("train debug --lr 1", "section.key=value: optimizer.lr=1"),
    ("train debug fp16=true", "here it is engine.precision"),
    ("train debug bf16=true", "here it is engine.precision"),
    ("train debug --fp16", "section.key=value: engine.precision=..."),
    ("train debug --resume", "not needed: the same command resumes; `--from RUN`"),
    ("train debug --restore-file x", "not needed: the same command resumes"),
    ("train debug --max-tokens 4096", LIMITS),
    ("train debug --save-dir x", "output and name"),
    ("train debug --gpus 2", "`zeromt launch local CONFIG --nproc N`"),
    ("launch local debug -n 2", "did you mean --nproc?"),
    ("launch local debug --gpus 2", "did you mean --nproc?"),
    ("train debug --wandb", "trackers=[{kind: wandb}]"),
    ("evaluate . --src x", "did you mean --source?"),
    ("evaluate . --ref x", "did you mean --reference?"),
    ("translate . --src x", "did you mean --input?"),
    ("evaluate . --input x", "did you mean --source?"),
    ("translate . --model x", "it is RUN, which is given without an option"),
    ("train debug train.x=1", "train: unknown key; here it is prepare.train"),
    ("train debug data.train=x", "data: unknown key; here it is prepare.train"),
    ("train debug model_type=transformer", "here it is preset"),
    ("train debug optimizer=adam", "there is no kind 'adam'; adamw with weight_decay=0 is Adam"),
    ("train debug schedule=noam", "inverse_sqrt is that of Vaswani"),
    ("train debug optimizer.warmup_updates=1", "did you mean schedule.warmup_updates?"),
    ("resume runs/x", "not needed: `zeromt train` or `zeromt launch` resumes when it is given again"),
    ("tensorboard", "`tensorboard --logdir FOLDER`"),
    ("serve", "docs/tutorials/serving.md"),
    ("list", "here it is `zeromt status`"),
    ("trian debug", "did you mean train?"),
    ("generate", "here it is `zeromt translate`"),
    ("help generate", "here it is `zeromt translate`"),
    ("help trian", "did you mean train?"),
    ("help nonsense", "COMMAND: 'nonsense' is unknown; give one of init, "),
    ("xyz", "COMMAND: 'xyz' is unknown; give one of init, "),
    ("train debug optimizer.zzz=1", "unknown key; allowed: kind, "),
    ("train debug --optimizer.lr=5e-4", "optimizer.lr=5e-4"),
    ("train debug --label-smoothing 0.1", "loss.label_smoothing=0.1"),
    ("train debug --max-steps 10", "training.max_updates=10"),
    ("train debug d_model=64", "d_model: unknown key; did you mean model.d_model?"),
    ("launch my.yaml", "on this machine: `zeromt launch local my.yaml`"),
    ("launch --nproc 2 my.yaml", "`zeromt launch local --nproc 2 my.yaml`"),
    ("translate . --beem 2", "did you mean --beam?"),
    ("translate . --zzz", "unrecognized arguments: --zzz; see"),
]


@pytest.mark.parametrize(("typed", "wanted"), ROWS, ids=[typed for typed, _ in ROWS])
def test_answers(refused: Refused, typed: str, wanted: str) -> None:
    said = refused(*typed.split())
    assert wanted in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "learn-rate: 0.0003\ntrain-sets: [a.en, a.fr]\ntype: transformer\nmini-batch-words: 1000\n",
            ["Marian", "learn-rate is optimizer.lr", "train-sets is prepare.train", f"mini-batch-words is {LIMITS}"],
        ),
        (
            "task: {data: x}\noptimization: {lr: [0.1], max_update: 9}\ncommon: {fp16: true}\n",
            ["fairseq", "max_update"],
        ),
        (
            "data: {corpus_1: {path_src: a}}\nsave_model: x\ntrain_steps: 9\n",
            ["Eole", "train_steps is training.max_up"],
        ),
        (
            "name: x\ndata: {src: {lang: en}, trg: {lang: de}}\ntraining: {epochs: 9, batch_type: token}\nmodel: {}\n",
            ["JoeyNMT", "training.epochs is training.max_epochs"],
        ),
        ('{"per_device_train_batch_size": 8, "num_train_epochs": 3, "output_dir": "x"}', ["Transformers"]),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}', ["DeepSpeed"]),
        ("exp_manager: {}\ntrainer: {max_steps: 9}\nmodel: {train_ds: {}}\n", ["NeMo"]),
        ("prepared_data: x\nshared_vocab: true\ncheckpoint_interval: 9\n", ["Sockeye"]),
        ("datasets: {a: b}\nstages: [a]\nmodifiers: []\n", ["OpusTrainer", "stages is phases"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("command", ["prepare", "train"])
def test_another_program_s_file(refused: Refused, tmp_path: Path, command: str, text: str, wanted: list[str]) -> None:
    (tmp_path / "config.yml").write_text(text)
    said = refused(command, str(tmp_path / "config.yml"))
    assert "this is a configuration of" in said
    assert "docs/other-systems.md" in said
    assert [one for one in wanted if one not in said] == []
    assert "\n" not in said


def test_ours_with_words_of_others_is_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("stream: {micro_batches: 1}\nlearning_rate: 1\nnum_train_epochs: 3\n")
    assert main(["train", str(tmp_path / "my.yaml")]) == 2
    assert [line.partition("error: ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "learning_rate: unknown key; here it is optimizer.lr",
        "num_train_epochs: unknown key; here it is training.max_epochs",
    ]


def test_table_is_right() -> None:
    """What the table says exists; what it calls another program's is not ours at that place."""
    fields = {field.path.replace("[N]", "") for field in meanings.fields()} | {"preset"}
    for here in set(other_tools.MEANT.values()):
        paths = {word.strip("(),").partition("=")[0] for word in here.split() if "." in word or here == word}
        assert here.startswith(("not needed", "output")) or paths <= fields, here
    for program, keys in other_tools._SHAPES.items():
        assert [key for key in keys.split() if key in fields] == [], program
    options = [option for here in set(parser.OPTIONS.values()) for option in here.split() if option.startswith("--")]
    known = {option for command in COMMANDS.values() for option in _options(command.add_arguments)}
    assert [option for option in options if option not in known] == []
    for here in other_tools._COMMANDS:
        named = re.findall("`zeromt ([a-z]+)", here)
        assert [name for name in named if name not in {command.split()[0] for command in COMMANDS}] == []


def _options(add_arguments: object) -> set[str]:
    from launcher.options.parser import Parser

    parser = Parser(prog="test")
    add_arguments(parser)  # type: ignore[operator]
    return {option for action in parser._actions for option in action.option_strings}
