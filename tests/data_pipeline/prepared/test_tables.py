"""A dataset's tables are arrays of numbers as long as their files; all else is refused, and ends no process."""

from pathlib import Path

import pytest

from data_pipeline.prepared.index import map_table


def headed(header: str, content: bytes = b"12345678") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


FORGED = [
    b"", b"\x93NUMPY", b"PK\x03\x04", b"\x80\x04K\x01.", headed("(" * 5000), headed("'"), headed("5"),
    *(
        headed(f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}")
        for dtype, shape in [
            ("'<u0'", "(2,)"), ("'V0'", "()"), ("[]", "(8,)"), ("'|O'", "(1,)"), ("'<u2'", "(5,)"), ("'<u2'", "(3,)"),
            ("'<u2'", "(-4,)"), ("'<u2'", "(-2, -2)"), ("'<u2'", f"({2**64},)"), ("'<u2'", f"({2**32}, {2**32})"),
            ("('<u2', (99999,))", "(1,)"), ("'x'", "(4,)"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("content", FORGED)
def test_what_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"header cannot be read|which is no array"):
        map_table(tmp_path / "x.npy")
