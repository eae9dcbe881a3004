"""Layers under torch.compile with the kernels for GPUs: the same sums, gradients and dropout, and few graphs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from model import Objective
from model.kernels.cuda import use
from model.loss import CrossEntropy
from tests.model.kernels.cuda.batches import lane
from tests.model.reference import tiny_model, tiny_section
from trainer.engines.layouts import stage

CPU = torch.device("cpu")
MODERN = {"residual": "pre", "activation": "swiglu", "positions": "rotary", "head_width": 4}


def trained(objective: Objective, number: int, rows: int) -> list[Tensor]:
    objective.zero_grad()
    batch = stage([lane(number, rows=rows, longest=5 + 2 * number)], [number], CPU, kind="flash")()
    out: Any = objective(batch.source, batch.target_input, batch.target_output, batch.layout)
    out.loss_sum.backward()
    return [*(x.detach() for x in out), *(p.grad for p in objective.parameters() if p.grad is not None)]


@pytest.mark.slow  # tracing takes a minute or two; on a GPU inductor's kernels would be looked at as well
@pytest.mark.parametrize("option", [{"residual": "post"}, MODERN], ids=["post", "modern"])
def test_graphs_are_few_and_say_the_same(option: dict[str, Any]) -> None:
    from torch._dynamo.backends.debugging import aot_eager

    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return aot_eager(graph, inputs)

    sizes = {"encoder_layers": 2, "decoder_layers": 1, "dropout": 0.3, "activation_dropout": 0.3}
    plain, compiled = (
        Objective(tiny_model(tiny_section(**option, **sizes)).train(), CrossEntropy(0.1)) for _ in range(2)
    )
    use(plain)
    use(compiled)
    for layer in compiled.model.layers:
        layer.compile(dynamic=True, backend=backend)
    counts = []
    for number, rows in enumerate((4, 7, 6)):
        for one, other in zip(trained(plain, number, rows), trained(compiled, number, rows), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
        counts.append(len(graphs))
    assert counts[0] == counts[-1] <= 2 * len(compiled.model.layers), "no shape has graphs of its own"
