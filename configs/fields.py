"""Types of fields that several sections share."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from configs.errors import UserError
from configs.files import expand

MOST = 2**63 - 1
"""The largest number that torch and numpy hold; they fail in ways of their own beyond it."""
Positive = Annotated[int, Field(gt=0, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(gt=0, le=1 << 24)]
"""Of one dimension; a product of two is a number that torch can hold."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=128)]
Home = AfterValidator(lambda text: _expanded(text))
"""`~` at the beginning is the home folder."""
PathText = Annotated[str, Home]
"""A file or folder."""
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([_-][A-Za-z0-9]+)*$")]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _expanded(text: str) -> str:
    try:
        return expand(text)
    except UserError as error:
        raise ValueError(str(error)) from error
