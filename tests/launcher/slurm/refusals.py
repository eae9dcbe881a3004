"""Values that would do harm in a script or a manifest, and what becomes of them."""

from collections.abc import Callable

from configs import UserError

HARM = ("; touch canary #", "$(touch canary)", "`touch canary`", "' ; touch canary ; '", '" ; touch canary ; "')


def refusal(make: Callable[[], str]) -> tuple[str, str]:
    """What was made, or the message with which it was refused."""
    try:
        return make(), ""
    except UserError as error:
        return "", str(error)
