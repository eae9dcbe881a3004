"""Texts beside one another, with what differs marked."""

from trainer.records.marked_text import marked


def test_marks() -> None:
    first, second = marked(["the cat sat", "the dog sat"])
    assert first == [("the ", False), ("cat", True), (" sat", False)]
    assert second == [("the ", False), ("dog", True), (" sat", False)]
    assert marked(["我喜歡書", "我愛書"]) == [
        [("我", False), ("喜歡", True), ("書", False)],
        [("我", False), ("愛", True), ("書", False)],
    ]
    of_three = marked(["a b c", "a b c", "a x c"])
    assert of_three[0] == [("a ", False), ("b", True), (" c", False)]
    assert of_three[1] == [("a b c", False)]
    for text in ("", " ", "a  b\tc", "\u202eab", "<b>|</b>", "字" * 10_000, "long" * 2500):
        for pieces in marked([text, "a b", ""]), marked(["", text]):
            assert "".join(piece for piece, _ in pieces[0 if pieces[0] else 1]) in (text, "a b", "")
        assert "".join(piece for piece, _ in marked([text, "other"])[0]) == text
