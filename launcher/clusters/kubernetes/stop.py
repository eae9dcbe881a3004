"""`python -m launcher.clusters.kubernetes.stop JOB`: used by `zeromt stop` if the run's folder cannot be reached.

The Job is suspended, not deleted: its pods get SIGTERM, the ranks save, and Kubernetes starts no new pods.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from configs import UserError
from configs.process.streams import tell
from launcher.clusters.kubernetes.cluster import suspend
from launcher.clusters.kubernetes.kubectl import find_job
from launcher.clusters.kubernetes.section import KubernetesSection

_LOOK_SECONDS = 1.0
_LINE_SECONDS = 10.0


def main(argv: Sequence[str]) -> int:
    """Suspend the Job, and wait until its pods have ended.

    Returns:
        0; 1 if the job ended in another way; 2 if the cluster refuses.
    """
    parser = argparse.ArgumentParser(prog="python -m launcher.clusters.kubernetes.stop")
    parser.add_argument("job")
    parser.add_argument("--context")
    parser.add_argument("--namespace")
    parser.add_argument("--workload", choices=("job", "jobset"), default="job")
    parser.add_argument("--no-wait", dest="wait", action="store_false")
    given = parser.parse_args(argv)
    site = KubernetesSection(context=given.context, namespace=given.namespace, workload=given.workload)
    try:
        suspend(given.job, site)
    except UserError as error:
        tell(f"zeromt: error: {error}")
        return 2
    if not given.wait:
        tell(f"zeromt: job {given.job}: asked to save and stop")
        return 0
    begin = said = time.monotonic()
    while (job := find_job(given.job, site)).end is None and job.state != "GONE":
        now = time.monotonic()
        if now - said >= _LINE_SECONDS:
            tell(f"zeromt: waiting for job {given.job} to save and stop, {now - begin:.0f} s")
            said = now
        time.sleep(_LOOK_SECONDS)
    end = job.end.value if job.end is not None else "deleted"
    tell(f"zeromt: job {given.job}: {end}")
    return 0 if end in ("stopped", "finished") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
