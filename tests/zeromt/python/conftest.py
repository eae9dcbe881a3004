"""A configuration whose preparation takes a second, and whose updates take milliseconds."""

from pathlib import Path

import pytest
import yaml

from tests.small import FILES


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file; what it says is to be prepared and trained in the test's folder."""
    return write_config(tmp_path)


def write_config(folder: Path) -> Path:
    tree = yaml.safe_load((FILES / "small.yaml").read_text())
    tree["prepare"] |= {"output": str(folder / "prepared"), "root": str(FILES / "corpus")}
    tree |= {"output": str(folder / "runs"), "name": "my"}
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path
