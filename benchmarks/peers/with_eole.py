"""Decodes one of our models with Eole: converts it to a folder that Eole loads, and uses the engine of `eole predict`.

    EOLE_PYTHON benchmarks/peers/with_eole.py < JOB.json > RESULT.json

It runs in Eole's Python environment, without zeromt. Eole's pre-norm Transformer with `SinusoidalInterleaved` positions
equals ours except for names and the order of the special ids, so with our weights it computes the same function.
`foreign_job` in `benchmarks.decoding.decode` describes the job.
"""

import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from eole.config.run import PredictConfig
from eole.inference_engine import InferenceEnginePY
from safetensors.torch import save_file

OURS = ["<blank>", "<s>", "</s>", "<unk>"]
"""Eole's tokens for our first ids; the tokens of the other ids are their numbers."""
THEIRS = ["<unk>", "<blank>", "<s>", "</s>"]
"""Eole's order of them. It maps tokens outside its vocabulary to id 0, so that must be <unk>."""
PARTS = {
    "layers": "transformer_layers",
    "norm": "layer_norm",
    "self_attention": "self_attn",
    "self_attention_residual": "input_layernorm",
    "cross_attention": "context_attn",
    "cross_attention_residual": "precontext_layernorm",
    "feed_forward": "mlp",
    "feed_forward_residual": "post_attention_layernorm",
    "query": "linear_query",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "final_linear",
    "inner": "gate_up_proj",
    "outer": "down_proj",
}
"""Maps parts of our parameter names to Eole's."""
TIED = {"tgt_emb.embeddings.weight", "generator.weight"}


def write_model(folder: Path, sizes: dict[str, Any], weights: dict[str, torch.Tensor]) -> set[str]:
    """Write a model folder as Eole does; returns the names of the parameters that Eole must load."""
    first = "encoder.layers.0"
    model = {
        "architecture": "transformer",
        "hidden_size": sizes["d_model"],
        "heads": sizes["num_heads"],
        "transformer_ff": sizes["d_ff"],
        "mlp_activation_fn": sizes["activation"],
        "norm_eps": sizes["norm_eps"],
        "add_qkvbias": f"{first}.self_attention.query.bias" in weights,
        "add_final_linear_bias": f"{first}.self_attention.output.bias" in weights,
        "add_ffnbias": f"{first}.feed_forward.inner.bias" in weights,
        "generator_bias": False,
        "encoder": {"layers": sizes["encoder_layers"]},
        "decoder": {"layers": sizes["decoder_layers"]},
        "embeddings": {"word_vec_size": sizes["d_model"], "position_encoding_type": "SinusoidalInterleaved"},
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }
    config = {"src_vocab": "", "share_vocab": True, "data": {}, "model": model, "training": {"compute_dtype": "fp32"}}
    (folder / "config.json").write_text(json.dumps(config))
    tokens = THEIRS + [str(i) for i in range(len(OURS), sizes["vocab"])]
    (folder / "vocab.json").write_text(json.dumps({"src": tokens, "tgt": tokens, "decoder_start_token": "<s>"}))
    tensors = theirs(weights)
    save_file(tensors, folder / "model.00.safetensors")
    return set(tensors) | TIED


def theirs(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our weights under Eole's names; tied weights occur once."""
    table = weights["target_embedding.tokens.weight"]
    order = [OURS.index(token) for token in THEIRS]
    found = {"src_emb.embeddings.weight": torch.cat([table[order], table[len(order) :]])}
    for name, tensor in weights.items():
        if name.startswith(("encoder.", "decoder.")):
            parts = name.replace("_residual.norm.", "_residual.").split(".")
            found[".".join(PARTS.get(part, part) for part in parts)] = tensor
    return found


def load(folder: Path, loaded: set[str], search: dict[str, Any]) -> InferenceEnginePY:
    """The engine of `eole predict`, with the settings of one search."""
    config = PredictConfig(
        model_path=str(folder),
        src="",
        gpu_ranks=[],
        compute_dtype="fp32",
        batch_type="tokens",
        batch_size=search["batch"],
        beam_size=search["beam"],
        length_penalty="wu",
        alpha=search["length_penalty"],
        max_length=search["longest"],
    )
    engine = InferenceEnginePY(config)
    # Eole only logs missing or unexpected weights
    names = {name for name in engine.predictor.model.state_dict() if not name.endswith((".pe.pe", ".layer_scalar"))}
    assert names == loaded, names ^ loaded
    return engine


def translate(engine: InferenceEnginePY, sources: list[list[int]]) -> list[list[int]]:
    """Translate; takes and returns our ids, without EOS in the result."""
    to_ours = {token: i for i, token in enumerate(OURS)}
    lines = [" ".join(OURS[i] if i < len(OURS) else str(i) for i in ids) for ids in sources]
    _, _, found = engine.infer_list(lines)
    return [[to_ours[t] if t in to_ours else int(t) for t in best[0].split()] for best in found]


def main() -> None:
    """Read the job, load the model, warm up, time each search, and write the results."""
    job = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer, tempfile.TemporaryDirectory(dir=Path(job["weights"]).parent) as work:
        os.dup2(2, 1)  # keeps Eole's output out of the result
        torch.set_num_threads(job["threads"])
        weights = {name: torch.from_numpy(array) for name, array in np.load(job["weights"]).items()}
        loaded = write_model(Path(work), job["sizes"], weights)
        results = []
        for part in job["searches"]:
            engine = load(Path(work), loaded, part)
            translate(engine, job["sources"][-job["warm_up"] :])
            begin, cpu = time.perf_counter(), time.process_time()
            ids = translate(engine, job["sources"])
            results.append(
                {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu, "ids": ids}
            )
        answer.write(json.dumps({"version": version("eole"), "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
