"""Every odd place in every slot: wherever the name of a file or folder is typed, each of `places.ODD` once."""

import json
from collections.abc import Iterator

from configs.corpus import FORMS
from tests.fuzz import places
from tests.fuzz.call import Call

MODEL = "runs/small/checkpoints/step-00000010/model-00000-of-00001.safetensors"
SLOTS: tuple[tuple[str, ...], ...] = (
    ("init", "{}", "-o", "out/new.yaml"),
    ("init", "corpus/a.en", "{}", "-o", "out/new.yaml"),
    ("init", "corpus/a.en", "corpus/a.fr", "-o", "{}"),
    ("inspect", "{}"),
    ("batch", "{}", "1"),
    ("status", "{}"),
    ("stop", "{}", "--no-wait"),
    ("log", "{}"),
    ("translate", "{}", "-i", places.TEXTS[0]),
    ("translate", places.RUN, "-i", "{}"),
    ("translate", places.RUN, "-i", places.TEXTS[0], "--prefix", "{}"),
    ("translate", places.RUN, "-i", places.TEXTS[0], "--ensemble", "{}"),
    ("translate", places.RUN, "-i", places.TEXTS[0], "-o", "{}"),
    ("translate", places.RUN, "-i", places.TEXTS[0], "--attention", "{}"),
    ("evaluate", places.RUN, "--source", "{}", "--reference", "{}"),
    ("evaluate", places.RUN, "--source", places.TEXTS[1], "--reference", places.TEXTS[2], "-o", "{}"),
    ("evaluate", "--engine", "{}", "--source", places.TEXTS[1], "--reference", places.TEXTS[2]),
    ("score", "{}", "--run", places.RUN),
    ("score", places.DATASET, "--run", "{}", "--part=1/2"),
    ("pipeline", "{}", "--dry-run"),
    ("pipeline", "clean", "{}"),
    ("pipeline", "pipeline.yaml", "inputs.text={}", "--dry-run"),
    ("pipeline", "pipeline.yaml", "output={}", "--dry-run"),
    ("pipeline", "pipeline.yaml", "output={}"),
    ("pipeline", "pipeline.yaml", "steps.sorted.use={}", "steps.sorted.run=null", "--dry-run"),
    ("average", "{}", "--last=2", "-o", "out/new"),
    ("average", places.RUN, "--last=2", "-o", "{}"),
    ("export", places.RUN, "--format=safetensors", "-o", "{}"),
    ("export", places.RUN, "--format=huggingface", "-o", "{}"),
    ("import", "--huggingface", "{}", "-o", "out/new"),
    ("import", "{}", "--preset=marian_base", "--tokenizer=dataset", "-o", "out/new"),
    ("import", MODEL, "--preset=marian_base", "--tokenizer={}", "-o", "out/new"),
    ("plan", "{}", "--nodes=1", "--gpus-per-node=2", "--gpu-memory=80GB"),
    ("plan", "small.yaml", "--nodes=1", "--gpus-per-node=2", "--gpu-memory=80GB", "--plugins", "{}"),
    ("translate", places.RUN, "-i", places.TEXTS[0], "--plugins", "{}"),
    ("launch", "slurm", "small.yaml", "--dry-run", "--site", "{}"),
)
PREPARE = ("prepare", "small.yaml", "prepare.output=made", "prepare.workers=1")
TRAIN = ("train", "small.yaml", "training.max_updates=11", "evaluation.max_pairs=2", "stream.retries=0")
NO_FILES = (
    "prepare.root=.",
    "prepare.train={{source: [], target: []}}",
    "prepare.valid={{source: [corpus/v.en], target: [corpus/v.fr]}}",
)
ONE_CORPUS = "prepare.train={{source: [corpus/a.en], target: [corpus/a.fr]}}"
SETTINGS: tuple[tuple[str, ...], ...] = (
    (*PREPARE, "prepare.root=.", "prepare.train.source=[{}]", "prepare.train.target=[corpus/a.fr]", NO_FILES[2]),
    (*PREPARE, "prepare.root=.", ONE_CORPUS, "prepare.valid.source=[{}]", "prepare.valid.target=[corpus/v.fr]"),
    *((*PREPARE, *NO_FILES, f"prepare.train.{form}=[{{}}]") for form in FORMS),
    (*PREPARE, "prepare.tokenizer.path={}"),
    (*PREPARE, "prepare.output={}"),
    (*PREPARE, "prepare.root={}"),
    (*TRAIN, "stream.datasets=[{{path: {}}}]"),
    (*TRAIN, "output={}"),
    ("plan", "small.yaml", "--nodes=1", "--gpus-per-node=2", "--gpu-memory=80GB", "plugins=[{}]"),
    (*TRAIN, "stream.datasets=[{{path: 'http://127.0.0.1:9/x'}}]", "stream.cache={}"),
)
"""Slots of the configuration: names stand in quotes there."""


def calls() -> Iterator[Call]:
    """All of them."""
    for place in places.ODD:
        for slot in SLOTS:
            yield Call(argv=tuple(word.format(place) for word in slot))
        for slot in SETTINGS if place.isprintable() else ():  # YAML has escapes of its own
            yield Call(argv=tuple(word.format(json.dumps(place, ensure_ascii=False)) for word in slot))
