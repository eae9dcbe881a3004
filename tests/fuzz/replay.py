"""`python -m tests.fuzz.replay CALL [FOLDER]`: makes one call again; its folder is kept where one is named."""

import sys
from pathlib import Path

from tests.fuzz.call import Call
from tests.fuzz.client import Server


def main() -> int:
    """1 where something is wrong with what becomes of the call."""
    keep = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    server = Server()
    try:
        problems = server.make(Call.from_json(sys.argv[1]), keep=keep)
    finally:
        server.close()
    print("\n".join(problems) or "as it must be")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
