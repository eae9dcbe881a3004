"""A site's list of packages, in the forms that pip writes."""

from pathlib import Path

import pytest

from installation.errors import InstallationError
from installation.project import pins
from installation.site_packages import read_list, versions_of_site

FREEZE = """# a comment
torch==2.11.0+cu130   # and another
Typing_Extensions==4.16.0
nvidia.cublas===13.1
local @ file:///somewhere/local.whl
-e git+https://host/project@0123#egg=editable
PyYAML
"""
LIST = """Package   Version   Editable project location
--------- --------- -------------------------
torch     2.11.0
editable  0.1.dev0  /home/somebody/editable
"""


def test_what_pip_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(FREEZE)
    assert read_list(path) == {
        "torch": "2.11.0+cu130",
        "typing-extensions": "4.16.0",
        "nvidia-cublas": "13.1",
        "local": None,
        "editable": None,
        "pyyaml": None,
    }
    path.write_text(LIST)
    assert read_list(path) == {"torch": "2.11.0", "editable": "0.1.dev0"}
    path.write_text("torch==2.11.0\nnumpy>=2\n")
    with pytest.raises(InstallationError, match=r"line 2: 'numpy>=2'; a line is name==version"):
        read_list(path)


def test_what_has_no_version_counts_as_pinned_but_for_what_builds() -> None:
    versions, guessed = versions_of_site({"torch": "2.11.0", "pyyaml": None, "setuptools": None, "unheard-of": None})
    assert versions == {"torch": "2.11.0", "pyyaml": pins()["pyyaml"]}
    assert guessed == ["pyyaml"]
