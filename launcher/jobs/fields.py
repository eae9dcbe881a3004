"""Types of fields shared by several clusters' profiles. Every value ends up in a script, so each has a pattern."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from configs.fields import MAX_INTEGER, Home

Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=4096)]
"""Any text; it is quoted for the shell."""
Place = Annotated[Text, Home]
"""A file or folder; it is quoted, so that a shell does not expand `~`."""
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}(,[A-Za-z0-9][A-Za-z0-9._-]{0,14})*$")]
Port = Annotated[int, Field(ge=1024, le=45_535)]
LossSeconds = Annotated[int, Field(ge=3, le=MAX_INTEGER)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable_problems(field: str, names: Iterable[str]) -> Iterator[str]:
    """One line for each invalid name of an environment variable."""
    for name in names:
        if not _VARIABLE.fullmatch(name):
            yield f"{field}: {name!r}; allowed are names of variables: letters, digits and _"
