"""Types of fields that are used in several sections."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from configs.errors import UserError
from configs.process.files import expand

MAX_INTEGER = 2**63 - 1
"""The largest integer in torch and numpy, which raise unhelpful errors for larger ones."""
Positive = Annotated[int, Field(gt=0, le=MAX_INTEGER)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(gt=0, le=1 << 24)]
"""Size of one dimension. The product of two is still a valid integer for torch."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=128)]
Pattern = Annotated[str, Field(min_length=1, max_length=256)]
"""Names of parameters, with the wildcards of a shell: see `model.trained`."""
Home = AfterValidator(lambda text: _expanded(text))
"""Replaces `~` at the beginning with the home folder."""
PathText = Annotated[str, Home]
"""Path of a file or folder."""
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([_-][A-Za-z0-9]+)*$")]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _expanded(text: str) -> str:
    try:
        return expand(text)
    except UserError as error:
        raise ValueError(str(error)) from error
