"""Other programs' names of commands, and what to use here."""

_TRAIN = "`zeromt train CONFIG`, or the `zeromt launch` command,"
_COMMANDS = {
    f"{_TRAIN} resumes a run when it is given again; `--from RUN` begins with another run's weights": "resume continue "
    "restart",
    f"{_TRAIN} trains": "fit run",
    f"{_TRAIN} with `--from RUN` begins with a run's weights": "finetune fine-tune",
    "`zeromt prepare CONFIG` prepares a corpus": "preprocess binarize tokenize data",
    "`zeromt translate RUN -i FILE`": "generate decode predict infer inference interactive",
    "`zeromt evaluate RUN` translates and scores a test set": "test eval score bleu",
    "`tensorboard --logdir FOLDER` shows runs; it comes with zeromt": "tensorboard board",
    "`zeromt translate RUN` reads stdin and can stay open; docs/tutorials/serving.md has a server": "serve server api",
    "`zeromt status RUN` shows a run, `zeromt compare RUN RUN` several": "list ls ps runs show",
    "did you mean log?": "logs tail",
    "did you mean stop?": "cancel kill",
    "`zeromt export` writes what other programs read, `zeromt import` reads what they write": "convert release",
    "did you mean average?": "average-checkpoints avg",
    "did you mean doctor?": "check env",
}
"""What to use here, and other programs' commands for it."""
OTHERS = {word: here for here, words in _COMMANDS.items() for word in words.split()}
