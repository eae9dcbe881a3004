"""Which streams get colours and bars."""

import io
import os
import pty

import pytest

from configs.process.streams import is_live


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
