"""What an optimizer keeps is compared with what it declares, and what a checkpoint would lack is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from configs import Optimizer, UserError
from tests.conftest import Corpus
from tests.forked import Forked
from trainer.engines.optimizer_states import OptimizerStates

FORGETFUL = '''
from typing import ClassVar

from configs.components import Optimizer, component


@component("optimizer", "forgetful")
class Forgetful(Optimizer):
    """AdamW, one of whose two states is not listed."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg",)

    def build(self, groups):
        import torch

        return torch.optim.AdamW([dict(group) for group in groups], lr=0.0)
'''


def after_a_step(build: Any, *states: str, shape: tuple[int, ...] = (4, 6), stage: int = 1) -> OptimizerStates:
    """The states of an optimizer of two parameters after its first step, checked."""
    own = {"states": states, "build": lambda _self, groups: build(groups)}
    section: Optimizer = type("Theirs", (Optimizer,), own)(kind="theirs")
    weights = [torch.nn.Parameter(torch.ones(shape)) for _ in range(2)]
    kept = {weight: section.states_of("weight", shape) for weight in weights}
    groups = [{"params": weights, "weight_decay": 0.0}]
    made = OptimizerStates(section, groups, kept, stage=stage, precision="fp32")
    for weight in weights:
        weight.grad = torch.full(shape, 0.5)
    with made.first_step():
        made.optimizer.step()
    made.check()
    return made


def torchs(name: str, **fields: Any) -> Any:
    return lambda groups: getattr(torch.optim, name)([dict(group) for group in groups], lr=0.1, **fields)


class Odd(torch.optim.Optimizer):
    """It keeps what is no tensor in its states, or changes a number of its groups."""

    def __init__(self, groups: Any, *, kept: Any = None, number: float = 0.0) -> None:
        super().__init__(groups, {"lr": 0.1, "number": 0.0})
        self._kept, self._number = kept, number

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.param_groups[0]["number"] = self._number
        for weight in self.param_groups[0]["params"]:
            self.state[weight] = {"sum": torch.zeros_like(weight), "step": 1, "odd": self._kept}


@pytest.mark.parametrize(
    ("build", "states", "said"),
    [
        (torchs("AdamW"), ["exp_avg"], r"of \(4, 6\) it keeps .*'exp_avg_sq': \(4, 6\)}, and it says {'exp_avg': "),
        (torchs("NAdam"), ["exp_avg", "exp_avg_sq"], r"of \(4, 6\) it keeps {'mu_product': \(\)"),
        (torchs("SGD"), ["momentum_buffer"], "(of .* it keeps {}|it keeps nothing)"),
        (torchs("Adafactor"), ["row_var", "col_var"], r"of \(4, 6\) it keeps .*'row_var': \(4, 1\)"),
        (torchs("Adagrad"), ["sum"], "it keeps state of parameters before its first step"),
        (torchs("AdamW"), [], "its `states` is empty"),
        (torchs("AdamW", betas=(2.0, 0.0)), ["exp_avg"], "cannot be built: ValueError: Invalid beta parameter"),
        (lambda groups: Odd(groups, kept=[1, 2]), ["sum"], ".*'odd': 'list'}, and it says {'sum'"),
        (lambda groups: Odd(groups, number=0.5), ["sum"], "its steps change numbers of its groups"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_refused_by_name(build: Any, states: list[str], said: str) -> None:
    with pytest.raises(UserError, match=f"optimizer.kind: theirs: {said}"):
        after_a_step(build, *states)


@pytest.mark.parametrize(
    ("build", "states", "stage"),
    [
        (torchs("RAdam"), ["exp_avg", "exp_avg_sq"], 1),
        (torchs("Rprop"), ["prev", "step_size"], 2),
        (torchs("Adagrad"), ["sum"], 0),
        (Odd, ["sum"], 3),
    ],
)
def test_what_keeps_tensors_and_counts_steps_is_taken(build: Any, states: list[str], stage: int) -> None:
    made = after_a_step(build, *states, stage=stage)
    made.set_steps(5)
    assert {float(state["step"]) for state in made.optimizer.state.values()} == {5.0}


def test_a_tensor_that_is_not_listed_is_refused_before_update_1(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    (tmp_path / "theirs.py").write_text(FORGETFUL)
    settings = [*corpus_en_fr.overrides, f"output={tmp_path}", "name=a", "optimizer.kind=forgetful"]
    done = forked.trainer(1, "debug", *settings, "--plugins", "theirs.py", cwd=tmp_path)
    assert done.code == 2
    assert "zeromt: error: optimizer.kind: forgetful: of (" in done.err
    assert not (tmp_path / "a" / "metrics.jsonl").exists()
