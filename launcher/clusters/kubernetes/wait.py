"""`python -m launcher.clusters.kubernetes.wait JOB`: in a pod of a job that follows another, waits for that.

It asks the API server with the pod's service account, which must be allowed to `get` Jobs.
"""

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.process.streams import note
from launcher.agents.root_cause import REFUSED, STOPPED

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOK_SECONDS = 5.0
_ANSWER_SECONDS = 10.0


def main(argv: Sequence[str], *, account: Path = ACCOUNT, look_seconds: float = _LOOK_SECONDS) -> int:
    """Wait for a Job.

    Args:
        argv: its name.
        account: folder of the service account.
        look_seconds: between queries.

    Returns:
        0: it has succeeded; 2: it has not, or may not be read; 75: after SIGTERM.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    (job,) = argv
    said = ""
    while True:
        try:
            problem, is_over = outcome(ask(job, account)), True
            if problem == "":
                return 0
        except urllib.error.HTTPError as error:
            problem, is_over = f"{error.code} {error.reason}", error.code in (401, 403, 404)
            if error.code in (401, 403):
                problem = f"service_account may not read it ({problem}); allowed is one that may `get` Jobs"
        except OSError as error:
            problem, is_over = str(error), False
        if problem is not None and is_over:
            note(f"error: job {job}, which must have succeeded: {problem}")
            return REFUSED
        line = f"waiting for job {job}" + (f": {problem}" if problem else "")
        if line != said:
            note(line)
        said = line
        time.sleep(look_seconds)


def ask(job: str, account: Path) -> dict[str, Any]:
    """A Job's object from the API server.

    Raises:
        OSError: it does not answer, or refuses (`HTTPError`).
    """
    namespace = (account / "namespace").read_text(encoding="utf-8").strip()
    token = (account / "token").read_text(encoding="utf-8").strip()  # the token changes every hour
    server = f"{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    url = f"https://{server}/apis/batch/v1/namespaces/{namespace}/jobs/{job}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, context=trust, timeout=_ANSWER_SECONDS) as answer:
        resource: dict[str, Any] = json.load(answer)
    return resource


def outcome(job: Mapping[str, Any]) -> str | None:
    """Empty if a Job has succeeded; the reason if it has failed; None while it goes on."""
    conditions = {c["type"]: c for c in (job.get("status") or {}).get("conditions") or [] if c.get("status") == "True"}
    if "Complete" in conditions:
        return ""
    if "Failed" in conditions:
        return " ".join(f"it failed: {conditions['Failed'].get('message')}".split())
    return "it was stopped" if (job.get("spec") or {}).get("suspend") else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
