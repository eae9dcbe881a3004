"""How much memory is left, by what the kernel says in its files."""

from pathlib import Path

import pytest

from trainer.ranks.host_memory import available, shortage

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {32 << 20} kB\n"}
V2 = {
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/job/memory.max": f"{10 * GIB}\n",
    "sys/fs/cgroup/job/memory.current": f"{7 * GIB}\n",
    "sys/fs/cgroup/job/memory.stat": f"anon 5\nactive_file 3\ninactive_file {GIB}\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
    "sys/fs/cgroup/job/step/memory.current": f"{6 * GIB}\n",
    "sys/fs/cgroup/job/step/memory.stat": "inactive_file 0\n",
}
V1 = {
    "proc/self/cgroup": "9:cpu:/\n4:memory:/not/seen/from/here\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB // 2}\n",
    "sys/fs/cgroup/memory/memory.stat": "cache 1\ninactive_file 0\ntotal_inactive_file 9\n",
}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, None),
        (MEMINFO, 32 * GIB),
        (MEMINFO | V2, 4 * GIB),
        (V1, GIB // 2),
        (MEMINFO | V2 | {"sys/fs/cgroup/job/memory.current": f"{12 * GIB}\n"}, 0),
        (MEMINFO | {"proc/self/cgroup": "garbage\n"}, 32 * GIB),
    ],
)
def test_the_least_of_machine_and_groups(files: dict[str, str], left: int | None, tmp_path: Path) -> None:
    assert available(machine(tmp_path, files)) == left


def test_this_machine_has_some() -> None:
    left = available()
    assert left is not None
    assert left > 1 << 20


def test_ranks_of_a_machine_share_its_memory() -> None:
    assert shortage([]) is None
    assert shortage([("a", 50, 100), ("b", 10, None)]) is None
    assert shortage([("a", 25, 100), ("a", 25, 110), ("b", 50, 100)]) is None
    problem = shortage([("a", 10, 100), ("b", 30, 100), ("b", 30, 90)])
    assert problem is not None
    assert problem.startswith("b has 90 bytes")
    assert "60" in problem
