"""How much memory is left, by what the kernel says in its files."""

from pathlib import Path

import pytest

from trainer.ranks.host_memory import available, shortage

GIB = 1 << 30
GROUPS = {
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/job/memory.max": f"{7 * GIB + 4}\n",
    "sys/fs/cgroup/job/memory.current": f"{7 * GIB}\n",
    "sys/fs/cgroup/job/memory.stat": "anon 5\nactive_file 3\ninactive_file 6\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
}


@pytest.mark.parametrize(("used", "left"), [(7 * GIB, 10), (8 * GIB, 0)])
def test_the_least_of_machine_and_groups(used: int, left: int, tmp_path: Path) -> None:
    assert available(tmp_path) > 1 << 20, "what the machine has"
    for name, content in (GROUPS | {"sys/fs/cgroup/job/memory.current": f"{used}\n"}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available(tmp_path) == left


def test_ranks_of_a_machine_share_its_memory() -> None:
    assert shortage([("a", 25, 100), ("a", 25, 110), ("b", 10, 20), ("c", 50, 100)]) is None
    problem = shortage([("a", 10, 100), ("b", 30, 100), ("b", 30, 90)])
    assert problem == "b has 100 bytes of memory left, copies of its ranks' shards take 60"
