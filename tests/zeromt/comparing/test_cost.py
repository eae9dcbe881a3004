"""What a run has cost, as far as its files tell."""

from pathlib import Path

from zeromt.comparing.cost import read_cost


def test_a_broken_run_has_what_can_be_read(tmp_path: Path) -> None:
    lines = ('{"kind": "train", "step": 1, "loss": 1.0}', '{"kind": "train", "step": 2, "lo')
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    (tmp_path / "ledger.json").write_text("[]")
    found = read_cost(tmp_path)
    assert (found.updates, found.target_tokens, found.goodput, found.device_hours) == (1, None, None, {})
