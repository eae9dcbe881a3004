"""`python target_pip.py 3.12 ...`: pip that reads the markers of requirements for another Python than it runs in.

`pip --python-version` chooses wheels by it, but asks `python_version < "3.13"` of the Python that runs
(https://github.com/pypa/pip/issues/6117).
"""

import sys

from pip._internal.cli.main import main
from pip._vendor.packaging import markers

TARGET = {
    "python_version": sys.argv[1],
    "python_full_version": f"{sys.argv[1]}.0",
    "implementation_name": "cpython",
    "implementation_version": f"{sys.argv[1]}.0",
    "platform_python_implementation": "CPython",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
}


def target_environment() -> dict[str, str]:
    """What markers are evaluated against."""
    return {**_own(), **TARGET}


_own = markers.default_environment
markers.default_environment = target_environment
sys.exit(main(sys.argv[2:]))
