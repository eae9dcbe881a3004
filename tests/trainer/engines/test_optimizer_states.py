"""What an optimizer keeps is compared with what it declares; numbers are saved and resumed; the rest is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from configs import Optimizer, UserError
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from trainer.engines.optimizer_states import OptimizerStates

OPTIMIZERS = '''
from typing import ClassVar

from configs.components import Optimizer, component


@component("optimizer", "forgetful")
class Forgetful(Optimizer):
    """AdamW, one of whose two states is not listed."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg",)

    def build(self, groups):
        import torch

        return torch.optim.AdamW([dict(group) for group in groups], lr=0.0)


@component("optimizer", "nadam")
class NAdam(Optimizer):
    """It keeps `mu_product` beside its tensors."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")

    def build(self, groups):
        import torch

        return torch.optim.NAdam([dict(group) for group in groups], lr=0.0, momentum_decay=0.5)


@component("optimizer", "counting")
class Counting(Optimizer):
    """Momentum, whose steps become smaller by a whole number in its state and one in its groups."""

    states: ClassVar[tuple[str, ...]] = ("momentum",)

    def build(self, groups):
        import torch

        class Counter(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    group["k"] = group.get("k", 0) + 1
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if not state:
                            state["momentum"], state["step"], state["seen"] = torch.zeros_like(p), 0, 0
                        state["step"] += 1
                        state["seen"] += 2
                        state["momentum"].mul_(0.9).add_(p.grad)
                        p.add_(state["momentum"], alpha=-group["lr"] / (group["k"] + state["seen"] + state["step"]))

        return Counter([dict(group) for group in groups], {"lr": 0.0})


@component("optimizer", "uneven")
class Uneven(Optimizer):
    """AdamW whose groups get a number on rank 1 alone."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")

    def build(self, groups):
        import torch

        class Stepper(torch.optim.AdamW):
            def step(self, closure=None):
                super().step(closure)
                if torch.distributed.get_rank() == 1:
                    for group in self.param_groups:
                        group["d"] = 0.5

        return Stepper([dict(group) for group in groups], lr=0.0)
'''


def built(build: Any, *states: str, **declared: Any) -> Optimizer:
    """A component that builds one of torch's optimizers."""
    own = {"states": states, "build": lambda _self, groups: build(groups), **declared}
    made: Optimizer = type("Theirs", (Optimizer,), own)(kind="theirs")
    return made


def after_a_step(
    build: Any, *states: str, shape: tuple[int, ...] = (4, 6), stage: int = 1, **declared: Any
) -> OptimizerStates:
    """The states of an optimizer of two parameters after its first step, checked."""
    weights = [torch.nn.Parameter(torch.ones(shape)) for _ in range(2)]
    section = built(build, *states, **declared)
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
    """It keeps one thing that is no tensor and no number, or that differs between parameters."""

    def __init__(self, groups: Any, kept: Any) -> None:
        super().__init__(groups, {"lr": 0.1})
        self._kept = kept

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for number, weight in enumerate(self.param_groups[0]["params"]):
            self.state[weight] = {"sum": torch.zeros_like(weight), "odd": self._kept(number)}


@pytest.mark.parametrize(
    ("build", "states", "said"),
    [
        (torchs("AdamW"), ["exp_avg"], "it keeps a tensor exp_avg_sq too, and its `states` are exp_avg"),
        (torchs("SGD"), ["momentum_buffer"], "it keeps (no tensor momentum_buffer|nothing after a step)"),
        (
            torchs("Adafactor"),
            ["row_var", "col_var"],
            r"its row_var has the shape \[4, 1\] where it steps on \[4, 6\], and it says \[4, 6\]",
        ),
        (torchs("Adafactor"), ["variance"], "it keeps no tensor variance"),
        (torchs("Adagrad"), ["sum"], "it keeps state of parameters before its first step"),
        (torchs("AdamW"), [], "its `states` is empty"),
        (torchs("AdamW", betas=(2.0, 0.0)), ["exp_avg"], "cannot be built: ValueError: Invalid beta parameter"),
        (lambda groups: Odd(groups, lambda _: [1, 2]), ["sum"], "it keeps odd, a list"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_refused_by_name(build: Any, states: list[str], said: str) -> None:
    with pytest.raises(UserError, match=f"optimizer.kind: theirs: {said}"):
        after_a_step(build, *states)


def test_one_of_matrices_alone_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="theirs: cannot be built: ValueError: Muon only supports 2D"):
        after_a_step(torchs("Muon"), "momentum_buffer", shape=(8,))


def test_numbers_that_differ_between_parameters_are_refused() -> None:
    states = after_a_step(lambda groups: Odd(groups, lambda number: number), "sum")
    with pytest.raises(UserError, match="its odd is 0 for one parameter and 1 for another"):
        states.numbers()
    assert after_a_step(lambda groups: Odd(groups, lambda _: 2), "sum").numbers()["beside"] == {"odd": 2}


@pytest.mark.parametrize("name", ["AdamW", "Adam", "RAdam", "Adamax", "Rprop", "RMSprop", "ASGD", "Adadelta", "NAdam"])
def test_what_torch_has_is_taken_and_goes_on_from_its_numbers(name: str) -> None:
    keys = {
        "Adamax": ("exp_avg", "exp_inf"), "Rprop": ("prev", "step_size"), "RMSprop": ("square_avg",), "ASGD": ("ax",),
        "Adadelta": ("square_avg", "acc_delta"),
    }.get(name, ("exp_avg", "exp_avg_sq"))  # fmt: skip
    states = after_a_step(torchs(name), *keys)
    again = after_a_step(torchs(name), *keys)
    numbers = states.numbers()
    states.optimizer.step()
    later = states.numbers()
    states.set_numbers(numbers)
    assert states.numbers() == again.numbers() == numbers
    assert (later != numbers) == (name in ("NAdam", "ASGD"))


def test_adagrad_on_parameters_themselves_is_taken() -> None:
    assert after_a_step(torchs("Adagrad"), "sum", stage=0).numbers() == {}


@pytest.mark.parametrize(
    ("kind", "stage"), [pytest.param("nadam", 1, marks=pytest.mark.slow), ("nadam", 3), ("counting", 0)]
)
def test_numbers_are_resumed(kind: str, stage: int, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """As if the run had never ended, and the trial of the memory before update 1 leaves nothing behind."""
    (tmp_path / "theirs.py").write_text(OPTIMIZERS)
    common = [
        *corpus_en_fr.overrides, f"output={tmp_path}", "--plugins", "theirs.py", f"optimizer.kind={kind}",
        "optimizer.lr=0.05", f"engine.zero_stage={stage}", "engine.precision=fp32", "training.log_every=1",
        "training.tensorboard=false", "evaluation.max_pairs=2", "evaluation.every_updates=0",
        "schedule={kind: constant, warmup_updates: 0}",
    ]  # fmt: skip
    # after two updates: the trial makes three steps, whose numbers are not to pass for those that were saved
    for name, most, more in (("whole", 5, "false"), ("parts", 2, "true"), ("parts", 5, "true")):
        settings = [f"name={name}", f"training.max_updates={most}", f"training.fit_memory={more}"]
        done = forked.trainer(2, "debug", *common, *settings, cwd=tmp_path)
        assert done.code == 0, done.err
    whole, parts = ([line["loss"] for line in read_metrics(tmp_path / name)] for name in ("whole", "parts"))
    assert parts == whole


def test_a_tensor_that_is_not_listed_is_refused_before_update_1(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    (tmp_path / "theirs.py").write_text(OPTIMIZERS)
    settings = [*corpus_en_fr.overrides, f"output={tmp_path}", "name=a", "optimizer.kind=forgetful"]
    done = forked.trainer(1, "debug", *settings, "--plugins", "theirs.py", cwd=tmp_path)
    assert done.code == 2
    assert "optimizer.kind: forgetful: it keeps a tensor exp_avg_sq too, and its `states` are exp_avg" in done.err
    assert not (tmp_path / "a" / "metrics.jsonl").exists()


def test_numbers_that_one_rank_alone_has_are_refused(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """No rank waits for one that has none."""
    (tmp_path / "theirs.py").write_text(OPTIMIZERS)
    settings = [
        *corpus_en_fr.overrides, f"output={tmp_path}", "name=a", "optimizer.kind=uneven", "training.max_updates=2",
        "evaluation.every_updates=0", "checkpoint.every_updates=1", "engine.precision=fp32",
    ]  # fmt: skip
    done = forked.trainer(2, "debug", *settings, "--plugins", "theirs.py", cwd=tmp_path)
    assert done.code != 0
    refusals = {line for line in done.err.splitlines() if "zeromt: error: optimizer.kind: its numbers are " in line}
    assert any("and others on another rank; " in line for line in refusals), done.err
