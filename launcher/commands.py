"""Commands that read the configuration before anything heavy is imported, so that its errors show at once."""

from collections.abc import Sequence

from configs import load_run
from launcher.dispatch import resolve


def prepare(*, config: str, overrides: Sequence[str], part: tuple[int, int] | None, merge: bool) -> int:
    """`zeromt prepare`: raw text -> tokenizer, shards and index; or a share of it, or the shares' merge.

    Raises:
        UserError: the configuration or the corpus is wrong.
    """
    section = load_run(config, overrides).prepare
    share = resolve("data_pipeline.preparation.prepare:Share")(*part) if part is not None else None
    resolve("data_pipeline.preparation.prepare:run")(section, share=share, merge=merge)
    return 0


def train(*, config: str, overrides: Sequence[str]) -> int:
    """`zeromt train`: one process, or one rank when torchrun started it.

    Returns:
        The exit code.

    Raises:
        UserError: the configuration is wrong.
    """
    load_run(config, overrides)
    return int(resolve("trainer.main:run")(config, list(overrides)))
