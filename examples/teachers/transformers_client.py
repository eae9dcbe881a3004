"""Translations by a sequence-to-sequence folder of Transformers, for the engine `command` of `zeromt translate`.

    kind: command
    command: [python, examples/teachers/transformers_client.py, FOLDER, --beam, "4"]
    name: FOLDER
    in_flight: 256

FOLDER may be an export of zeromt (`zeromt export --format huggingface`). It must be here: nothing is fetched.
"""

import argparse
import json
import os

from lines import batches

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(options.folder).to(options.device).eval()
    for batch in batches(options.batch):
        number = max(int(line.get("candidates", 1)) for line in batch)
        inputs = tokenizer([line["source"] for line in batch], return_tensors="pt", padding=True).to(options.device)
        kept = {name: value for name, value in inputs.items() if name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            found = model.generate(
                **kept,
                num_beams=max(options.beam, number),
                num_return_sequences=number,
                max_length=options.max_length,
                do_sample=False,
            )
        texts = tokenizer.batch_decode(found, skip_special_tokens=True)
        for row, line in enumerate(batch):
            answer = {"id": line["id"], "candidates": texts[row * number : (row + 1) * number]}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
