"""Which streams get colours and bars, and how wide they are."""

import io
import os
import pty

import pytest

from configs.process.terminal import columns, is_live


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),  # no-color.org: when not an empty string
        ({"TERM": "xterm", "NO_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_live(variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    end, terminal = pty.openpty()
    with os.fdopen(end, "rb"), os.fdopen(terminal, "w") as stream:
        assert is_live(stream) == expected
    assert not is_live(stream), "it is closed"
    assert not is_live(io.StringIO())
    assert not is_live(None)


def test_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert columns(io.StringIO()) == 77
    end, terminal = pty.openpty()
    with os.fdopen(end, "rb"), os.fdopen(terminal, "w") as stream:
        assert columns(stream) == 77, "a terminal that does not say"
