"""The messages that matter most are those of the snapshot; no other test quotes one."""

from tests.conftest import ask_python
from tests.messages import FILE


def test_what_is_said_is_what_the_snapshot_has() -> None:
    said = ask_python("from tests.messages import answers; answer = list(answers())")
    assert said == FILE.read_text().splitlines(), "`make messages` writes what is said now: read the diff"
