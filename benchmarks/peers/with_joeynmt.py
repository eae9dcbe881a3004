"""Decodes one of our models with JoeyNMT's classes and search.

    JOEYNMT_PYTHON benchmarks/peers/with_joeynmt.py < JOB.json > RESULT.json

It runs in JoeyNMT's Python environment, without zeromt. JoeyNMT's pre-norm Transformer equals ours except for names,
the norms' eps (set to ours here) and the order of the special ids, so with our weights it computes the same function.
`foreign_job` in `benchmarks.decoding.decode` describes the job.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

SPECIAL = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
TO_THEIRS = [SPECIAL["pad"], SPECIAL["bos"], SPECIAL["eos"], SPECIAL["unk"]]
"""JoeyNMT's ids of our first ids; all other ids are equal."""
ATTENTION = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
BLOCKS = {
    "encoder": {"self_attention": ("src_src_att", "layer_norm")},
    "decoder": {
        "self_attention": ("trg_trg_att", "x_layer_norm"),
        "cross_attention": ("src_trg_att", "dec_layer_norm"),
    },
}


def build(sizes: dict[str, Any], weights: dict[str, torch.Tensor]) -> Model:
    """Build JoeyNMT's model with our weights."""
    symbols = {
        f"{name}_{kind}": value for name, i in SPECIAL.items() for kind, value in (("token", f"<{name}>"), ("id", i))
    }
    names = [f"piece{i}" for i in range(len(SPECIAL), sizes["vocab"])]
    vocabulary = Vocabulary(names, SimpleNamespace(**symbols, sep_token=None, lang_tags=[]))
    stack = {
        "type": "transformer",
        "num_heads": sizes["num_heads"],
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "layer_norm": "pre",
        "activation": sizes["activation"],
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": sizes["scale_embeddings"]},
    }
    config = {side: {**stack, "num_layers": sizes[f"{side}_layers"]} for side in ("encoder", "decoder")}
    model = build_model({**config, "tied_embeddings": True, "tied_softmax": True}, vocabulary, vocabulary).eval()
    missing, unexpected = model.load_state_dict(theirs(weights), strict=False)
    assert not unexpected, unexpected
    assert all(name.endswith(".pe") for name in missing), missing
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = sizes["norm_eps"]
    return model


def theirs(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our weights under JoeyNMT's names."""
    table = weights["target_embedding.tokens.weight"].clone()
    table[torch.tensor(TO_THEIRS)] = weights["target_embedding.tokens.weight"][: len(TO_THEIRS)]
    found = dict.fromkeys(("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"), table)
    for name, tensor in weights.items():
        stack, *rest = name.split(".")
        if stack in BLOCKS:
            found[f"{stack}.{their_name(BLOCKS[stack], rest)}"] = tensor
    return found


def their_name(blocks: dict[str, tuple[str, str]], rest: list[str]) -> str:
    """JoeyNMT's name of a parameter, without the prefix `encoder.` or `decoder.`."""
    end = rest[-1]
    if rest[0] == "norm":
        return f"layer_norm.{end}"
    layer, block = ".".join(rest[:2]), rest[2]
    if block == "feed_forward":
        return f"{layer}.feed_forward.pwff_layer.{0 if rest[3] == 'inner' else 3}.{end}"
    if block == "feed_forward_residual":
        return f"{layer}.feed_forward.layer_norm.{end}"
    attention, norm = blocks[block.removesuffix("_residual")]
    return f"{layer}.{norm}.{end}" if block.endswith("_residual") else f"{layer}.{attention}.{ATTENTION[rest[3]]}.{end}"


def translate(model: Model, sources: list[list[int]], batches: list[list[int]], job: dict[str, Any]) -> list[list[int]]:
    """Translate; takes and returns our ids, without EOS in the result."""
    to_ours = np.argsort(TO_THEIRS).tolist()
    found: list[list[int]] = [[]] * len(sources)
    for rows in batches:
        ids = [[TO_THEIRS[i] if i < len(TO_THEIRS) else i for i in sources[row]] for row in rows]
        width = max(map(len, ids))
        batch = Batch(
            src=torch.tensor([[*row, *[SPECIAL["pad"]] * (width - len(row))] for row in ids]),
            src_length=torch.tensor([len(row) for row in ids]),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(ids)),
            device=torch.device("cpu"),
            pad_index=SPECIAL["pad"],
            eos_index=SPECIAL["eos"],
            is_train=False,
        )
        output, _, _ = search(model, batch, job["longest"], job["beam"], job["length_penalty"], return_prob="none")
        for row, out in zip(rows, output.astype(int).tolist(), strict=True):
            kept = out[: out.index(SPECIAL["eos"])] if SPECIAL["eos"] in out else out
            found[row] = [to_ours[i] if i < len(to_ours) else i for i in kept]
    return found


def main() -> None:
    """Read the job, load the model, warm up, time each search, and write the results."""
    job = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)  # keeps JoeyNMT's output out of the result
        torch.set_num_threads(job["threads"])
        weights = {name: torch.from_numpy(array) for name, array in np.load(job["weights"]).items()}
        model = build(job["sizes"], weights)
        results = []
        for part in job["searches"]:
            translate(model, job["sources"], part["batches"][-1:], part)
            begin, cpu = time.perf_counter(), time.process_time()
            ids = translate(model, job["sources"], part["batches"], part)
            results.append(
                {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu, "ids": ids}
            )
        answer.write(json.dumps({"version": version("joeynmt"), "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
