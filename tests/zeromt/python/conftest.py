"""A configuration whose preparation takes a second, and whose updates take milliseconds."""

from pathlib import Path

import pytest
import yaml

from tests.small import FILES


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file; what it says is to be prepared and trained in the test's folder."""
    tree = yaml.safe_load((FILES / "small.yaml").read_text())
    tree["prepare"] |= {"output": str(tmp_path / "prepared"), "root": str(FILES / "corpus")}
    tree |= {"output": str(tmp_path / "runs"), "name": "my"}
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path
