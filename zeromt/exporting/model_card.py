"""README.md of an export: what the model is, where it comes from, what it scored; what is unknown is said to be.

The first lines are the metadata that model hubs read (Mitchell et al., 2019, propose such cards). A licence is not in
them: it depends on the data, which only whoever publishes the model knows. The checkpoint may be a stranger's: its text
is shown as it is, and is never markup.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.process.text import markdown, visible_name
from data_pipeline.prepared.index import SourceEntry
from trainer.checkpoint.format import SOURCES
from trainer.inference.loading import TrainedModel
from trainer.report import Code, Table, read_course, scores, table_lines
from trainer.runs.layout import STATE, run_of

_USE = {
    "huggingface": "`AutoModelForSeq2SeqLM` and `AutoTokenizer` load this folder; `search.json` has limits they lack.",
    "ctranslate2": "`ctranslate2.Translator` loads this folder; search as `search.json` says.",
}
_TO_FILL = """\
## To be filled in by whoever publishes it

- **Licence** of the weights, which the licences of the training data bound.
- **Training data**: names, sources, how they were cleaned.
- **Intended use, and what it is not for.** A translation model repeats the mistakes and prejudices of its data, and may
  leave out, add or invert meaning without any sign of it.
"""


def card(trained: TrainedModel, *, format: str, rounding: str | None) -> str:
    """The card, as Markdown.

    Args:
        trained: the model, and the checkpoint that it comes from.
        format: what it is exported as.
        rounding: of the stored weights, such as `int8`; None: none.
    """
    config, manifest = trained.config, trained.checkpoint.manifest
    source, target = config.prepare.source_language, config.prepare.target_language
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    model = config.model
    facts: list[Sequence[str]] = [
        ("languages", f"{source or 'not recorded'} to {target or 'not recorded'}"),
        ("architecture", f"Transformer, {model.encoder_layers} + {model.decoder_layers} layers, width {model.d_model}"),
        ("parameters", f"{parameters:,}"),
        ("weights", f"of update {manifest['step']:,} of the run {config.name}; {rounding or 'fp32'}"),
        ("data", Code(", ".join(one[:16] for one in manifest["fingerprints"]["data"]) or "not recorded")),
        ("tokenizer", Code(manifest["fingerprints"]["tokenizer"][:16])),
        ("trained with", ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())),
    ]
    lines = ["---", *_metadata(source, target), "---", "", f"# {_text(config.name)}", ""]
    lines += [
        "A translation model, trained and exported with zeromt.",
        "",
        *table_lines(Table(head=("", ""), rows=facts)),
    ]
    lines += ["Data and tokenizer are named by the beginning of their SHA-256 fingerprint.", ""]
    rows = list(_scores(trained))
    table = Table(head=("on the validation set", "score", "weights", "signature"), rows=rows)
    lines += ["## Scores", "", *(table_lines(table) if rows else ["Not evaluated at this update.", ""])]
    lines += _sources(manifest.get(SOURCES, []))
    lines += [
        "## Use",
        "",
        _USE[format],
        "",
    ]
    return "\n".join([*lines, _TO_FILL])


def _sources(recorded: Any) -> list[str]:
    """A table of what the data were made of; nothing if no licence or attribution was recorded."""
    try:
        entries = TypeAdapter(list[SourceEntry]).validate_json(json.dumps(recorded))
    except ValidationError:
        return ["## Sources", "", "What the checkpoint has of them cannot be read.", ""]
    if not entries:
        return []
    rows: list[Sequence[str]] = [
        (Code(", ".join(one.files)), f"{one.pairs:,}", *(t or "not recorded" for t in (one.licence, one.attribution)))
        for one in entries
    ]
    return ["## Sources", "", *table_lines(Table(head=("files", "pairs", "licence", "attribution"), rows=rows))]


def _metadata(source: str | None, target: str | None) -> Iterator[str]:
    languages = list(dict.fromkeys(filter(None, (source, target))))
    if languages:
        yield f"language: {json.dumps([visible_name(one) for one in languages])}"
    yield "pipeline_tag: translation"
    yield "tags: [translation, zeromt]"


def _scores(trained: TrainedModel) -> Iterator[Sequence[str]]:
    """The scores of this very update on the validation sets, with their signatures, as the run has logged them."""
    run, step = run_of(trained.checkpoint.folder), trained.checkpoint.manifest["step"]
    if run is None or STATE not in trained.checkpoint.files:  # weights alone: an average, an import
        return
    weights = "moving average" if trained.config.training.ema_decay else "of the last update"
    for key, score, signature in scores(read_course(run).evaluations.get(step, {})):
        yield (key, f"{score:.4g}", weights, signature)


def _text(text: str) -> str:
    return markdown(visible_name(text))
