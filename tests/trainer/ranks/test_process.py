"""What a process sets before it computes, on GPUs that are said to be there."""

import os
from pathlib import Path
from unittest import mock

import pytest
import torch

from configs import UserError
from tests.forked import fork
from trainer.ranks.process import compute_deterministically, stay_on_this_machine, tune_process


@pytest.mark.parametrize("given", [{}, {"TORCHINDUCTOR_CACHE_DIR": "mine", "TRITON_CACHE_DIR": "mine"}])
def test_nobody_else_writes_where_compiled_code_is_kept(given: dict[str, str], tmp_path: Path) -> None:
    names = {"TORCHINDUCTOR_CACHE_DIR": "torchinductor", "TRITON_CACHE_DIR": "triton"}

    def task() -> dict[str, str]:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(XDG_CACHE_HOME=str(tmp_path), **given)
        tune_process()
        assert os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] == "0"
        return {name: os.environ[name] for name in names}

    assert fork(task) == (given or {name: f"{tmp_path}/zeromt/{place}" for name, place in names.items()})
    assert given or {path.stat().st_mode & 0o777 for path in (tmp_path / "zeromt").iterdir()} == {0o700}


@pytest.mark.parametrize("given", ["eth0", None])
def test_ranks_of_one_machine_keep_to_it_unless_the_user_says_otherwise(given: str | None) -> None:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")

    def task() -> set[str]:
        for name in names:
            os.environ.pop(name, None)
            if given is not None:
                os.environ[name] = given
        stay_on_this_machine()
        return {os.environ[name] for name in names}

    assert fork(task) == {given or "lo"}


def test_operators_without_a_deterministic_form_are_refused() -> None:
    """Not merely warned of: only then does attention go backward in one order on a GPU."""

    def task() -> tuple[bool, bool, str]:
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        compute_deterministically(draws_samples=True)
        strict = not torch.is_deterministic_algorithms_warn_only_enabled()
        return torch.are_deterministic_algorithms_enabled(), strict, os.environ["CUBLAS_WORKSPACE_CONFIG"]

    assert fork(task) == (True, True, ":4096:8")


def test_what_has_no_deterministic_form_on_a_gpu_is_named() -> None:
    with (
        mock.patch.object(torch.cuda, "is_available", return_value=True),
        pytest.raises(UserError, match=r"^training\.deterministic: true with evaluation\.search\.sampler"),
    ):
        compute_deterministically(draws_samples=True)
    assert not torch.are_deterministic_algorithms_enabled()
