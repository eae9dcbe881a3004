"""README.md of an export: what the model is, where it comes from, and the licences of its data.

The first lines are the metadata that model hubs read (Mitchell et al., 2019, propose such cards). A licence is not in
them: it depends on the data, which only the model's publisher knows. The checkpoint may be a stranger's: its text
is shown as it is, and is never markup.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.process.text import markdown, visible_name
from data_pipeline.prepared.index import SourceEntry
from trainer.checkpoint.format import SOURCES
from trainer.inference.loading import TrainedModel
from trainer.report import Code, Table, table_lines


def card(trained: TrainedModel, *, rounding: str | None) -> str:
    """The card, as Markdown.

    Args:
        trained: the model, and the checkpoint that it comes from.
        rounding: of the stored weights, such as `int8`; None: none.
    """
    config, manifest = trained.config, trained.checkpoint.manifest
    source, target = config.prepare.source_language, config.prepare.target_language
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    model = config.model
    facts: list[Sequence[str]] = [
        ("languages", f"{source} to {target}"),
        ("architecture", f"Transformer, {model.encoder_layers} + {model.decoder_layers} layers, width {model.d_model}"),
        ("parameters", f"{parameters:,}"),
        ("weights", f"of update {manifest['step']:,} of the run {config.name}; {rounding or 'fp32'}"),
        ("data", Code(", ".join(one[:16] for one in manifest["fingerprints"]["data"]) or "not recorded")),
        ("tokenizer", Code(manifest["fingerprints"]["tokenizer"][:16])),
        ("trained with", ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())),
    ]
    languages = json.dumps([visible_name(one) for one in (source, target)])
    lines = ["---", f"language: {languages}", "pipeline_tag: translation", "tags: [translation, zeromt]", "---", ""]
    lines += [f"# {markdown(visible_name(config.name))}", "", "A translation model, trained and exported with zeromt."]
    lines += ["", *table_lines(Table(head=("", ""), rows=facts))]
    lines += ["Data and tokenizer are named by the beginning of their SHA-256 fingerprint.", ""]
    return "\n".join([*lines, *_sources(manifest.get(SOURCES, []))])


def _sources(recorded: Any) -> list[str]:
    """A table of what the data were made of; nothing if no licence or attribution was recorded."""
    try:
        entries = TypeAdapter(list[SourceEntry]).validate_json(json.dumps(recorded))
    except ValidationError:
        return ["## Sources", "", "The checkpoint's list cannot be read.", ""]
    if not entries:
        return []
    rows: list[Sequence[str]] = [
        (Code(", ".join(one.files)), f"{one.pairs:,}", *(t or "not recorded" for t in (one.licence, one.attribution)))
        for one in entries
    ]
    return ["## Sources", "", *table_lines(Table(head=("files", "pairs", "licence", "attribution"), rows=rows))]
