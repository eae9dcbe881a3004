"""What is tried is what will run."""

from typing import Any

import pytest
import torch

from model import Objective
from model.kernels import use_kernels
from model.kernels.cuda.passes import CudaObjective
from model.layout import first_possible
from model.loss import CrossEntropy
from tests.model.reference import tiny_model, tiny_section
from trainer.engines import trial

CPU = torch.device("cpu")


@pytest.mark.parametrize(("option", "kind"), [({}, "flash"), ({"attention_dropout": 0.1}, "short")])
def test_a_trial_takes_the_layout_of_training(
    option: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Objective(tiny_model(tiny_section(**option)), CrossEntropy(0.1))
    use_kernels(objective, CPU, "cuda")
    assert first_possible(objective.layouts(CPU, torch.float32))[0] == kind
    layouts, forward = [], CudaObjective.forward

    def noted(self: CudaObjective, *arguments: Any) -> Any:
        layouts.append(arguments[4])
        return forward(self, *arguments)

    monkeypatch.setattr(CudaObjective, "forward", noted)
    assert trial.fits(trial.blueprint(objective, torch.float32), [(2, 4, 5), (3, 2, 2)], CPU, token=3)
    assert [layout.kind for layout in layouts] == [kind] * 2
    assert [len(layout.target.places) for layout in layouts] == [10, 6]
