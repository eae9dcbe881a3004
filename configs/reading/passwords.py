"""Passwords, tokens and signatures within URLs: `***` stands for them in all that is saved or shown.

https://me:***@host/data    https://host/data?X-Amz-Signature=***    postgresql://me:***@host/runs
"""

import re

HIDDEN = "***"
_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*://)"
    r"([^/?#\s]*@|[^/?#\s@:]*:(?!\d+[/?#])[^\s@]*@)?"  # the second: with slashes in the password, as databases take it
    r"([^\s\"'<>]*)"
)
_SECRET = "signature|sig|token|passw|pwd|secret|credential|key|auth|policy|session"
_QUERY = re.compile(rf"([?&;#][^=&;#?\s]*(?:{_SECRET})[^=&;#?\s]*=)([^&;#\s]+)", re.IGNORECASE)
"""Parts of a query that sign it or log in: X-Amz-Signature, sig, AWSAccessKeyId, password."""
_LACKS = re.compile(r"://(?:[^/?#\s]*:)?\*{3}@|[?&;#][^=&;#?\s]*=\*{3}(?:[&;#]|$)")
_VARIABLE = re.compile(r"\$\{[^{}]*\}")


def without_passwords(text: str) -> str:
    """The text with `***` for passwords, tokens and signatures in URLs; `${oc.env:NAME}` in their place stays."""
    if "://" not in text:
        return text
    names = _VARIABLE.findall(text)[: 0xF8FF - 0xE000]
    for number, name in enumerate(names):
        text = text.replace(name, _stand_in(number), 1)
    text = _URL.sub(_without, text)
    for number, name in enumerate(names):
        text = text.replace(_stand_in(number), name)
    return text


def lacks_password(text: str) -> bool:
    """Whether a URL in a text has `***` where its password was."""
    return "://" in text and _LACKS.search(text) is not None


def _stand_in(number: int) -> str:
    return chr(0xE000 + number)


def _without(url: re.Match[str]) -> str:
    scheme, login, rest = url[1], url[2] or "", url[3]
    user, colon, password = login.removesuffix("@").partition(":")
    if colon:
        login = f"{user}:{_hidden(password)}@"
    elif login and scheme.lower().startswith("http"):  # a token alone
        login = f"{_hidden(user)}@"
    return scheme + login + _QUERY.sub(lambda part: part[1] + _hidden(part[2]), rest)


def _hidden(secret: str) -> str:
    return secret if not secret or (len(secret) == 1 and "\ue000" <= secret <= "\uf8ff") else HIDDEN
