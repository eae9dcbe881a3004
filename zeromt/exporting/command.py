"""`zeromt export`: writes a trained model for another program, checked; if the check fails, nothing is left."""

from pathlib import Path
from typing import Any

import torch

from configs import UserError
from configs.process.environment import restored_environment
from trainer.inference.loading import places_of
from trainer.ranks.process import tune_process
from trainer.runs.new_folder import check_new, new_folder
from zeromt.exporting import model_card
from zeromt.formats import as_ctranslate2, as_huggingface
from zeromt.formats.check import find_text, load_exact, make_sample


@restored_environment()
def run(
    *,
    run: str,
    format: str,
    output: str,
    replace: bool,
    quantization: str | None,
    source: str | None,
    reference: str | None,
    raw_weights: bool,
) -> int:
    """Export a run's newest checkpoint, or the one that was named.

    Args:
        run: a run's folder, or a checkpoint.
        format: huggingface or ctranslate2.
        output: a new folder.
        replace: rename what is there before.
        quantization: of the stored weights; None: float32.
        source: sentences for the check and for BLEU; default: the validation set.
        reference: their references.
        raw_weights: use the weights themselves, even if there is a moving average.

    Raises:
        UserError: the other program does not support the model, or the input is wrong.
        ExportError: the exported model does not compute what the model does; its folder is removed.
    """
    dtype: Any = getattr(torch, quantization or "float32", None)
    if format == "huggingface" and (dtype is None or not dtype.is_floating_point):
        raise UserError(
            f"--quantization: {quantization!r} with --format huggingface; allowed is float32, float16 or bfloat16"
        )
    check_new(Path(output), places_of([run]), replaces=replace)
    tune_process()
    torch.set_flush_denormal(False)  # the writing libraries do not fsync them
    trained = load_exact(Path(run), raw=raw_weights)
    text = find_text(trained.config, source, reference)
    sample = make_sample(trained.model, trained.tokenizer, text)
    with new_folder(Path(output), replaces=replace) as folder:
        if format == "huggingface":
            notes = as_huggingface.export(trained, folder, sample, text, dtype=dtype)
        else:
            notes = as_ctranslate2.export(trained, folder, sample, text, quantization=quantization)
        about = model_card.card(trained, rounding=quantization)
        (folder / "README.md").write_text(about, encoding="utf-8")
    if trained.config.prepare.tag_both_sides:
        notes.append("a source is to begin with its language's tag, a translation to be forced to begin with its own")
    for note in notes:
        print(note)
    print(f"exported step {trained.checkpoint.manifest['step']} of {run} to {output}")
    return 0
