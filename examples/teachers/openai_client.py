"""Translations by any server with OpenAI's API, for the engine `command` of `zeromt translate`.

    kind: command
    command: [python, examples/teachers/openai_client.py, --url, URL, --model, NAME, --prompt, prompt.txt]
    name: NAME
    prompt: prompt.txt

URL is such as http://localhost:8000/v1. The prompt's file holds `{source}`, and perhaps `{context}`, the lines before.
`--completion` takes `/completions`, else it is `/chat/completions`. The key is the environment's OPENAI_API_KEY alone,
and is printed nowhere. Standard library only.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BUSY = (408, 409, 429, 500, 502, 503, 504)


class Client:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.prompt = Path(options.prompt).read_text(encoding="utf-8").rstrip("\n")
        self.lock = threading.Lock()
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        self.again = 0

    def answer(self, line: dict[str, Any]) -> None:
        """Answer a line with its candidates, or with why there is none."""
        try:
            found: dict[str, Any] = {"candidates": self.candidates(line)}
        except Exception as error:
            found = {"error": hidden(f"{type(error).__name__}: {error}")}
        with self.lock:
            print(json.dumps({"id": line["id"], **found}), flush=True)

    def candidates(self, line: dict[str, Any]) -> list[str]:
        options, number = self.options, int(line.get("candidates", 1))
        context = "\n".join(line.get("context", []))
        text = self.prompt.replace("{context}", context).replace("{source}", line["source"])
        said = {"prompt": text} if options.completion else {"messages": [{"role": "user", "content": text}]}
        body = {
            "model": options.model,
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
            "n": number,
        }
        reply = self.post("completions" if options.completion else "chat/completions", {**body, **said})
        with self.lock:
            for name in self.tokens:
                self.tokens[name] += int((reply.get("usage") or {}).get(name, 0))
        texts = [one["text"] if options.completion else one["message"]["content"] for one in reply["choices"]]
        return [text.strip() for text in texts if text and text.strip()]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post a request, and again where the server is busy: after twice as long each time, and some chance."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.options.url.rstrip('/')}/{path}", json.dumps(body).encode(), headers)
        for attempt in range(self.options.attempts):
            try:
                with urllib.request.urlopen(request, timeout=self.options.timeout) as reply:
                    return dict(json.load(reply))
            except urllib.error.HTTPError as error:
                if error.code not in BUSY or attempt + 1 == self.options.attempts:
                    raise
                asked = error.headers.get("Retry-After", "")
                wait = float(asked) if asked.isdigit() else self.options.pause * 2**attempt
            except OSError:
                if attempt + 1 == self.options.attempts:
                    raise
                wait = self.options.pause * 2**attempt
            with self.lock:
                self.again += 1
            time.sleep(wait * random.uniform(1, 1.5))
        raise AssertionError("the last attempt returns or raises")

    def summary(self) -> str:
        asked, told = self.tokens["prompt_tokens"], self.tokens["completion_tokens"]
        cost = (asked * self.options.price[0] + told * self.options.price[1]) / 1e6
        return f"openai_client: {asked:,} + {told:,} tokens, cost {cost:.4f}, {self.again} requests again"


def hidden(text: str) -> str:
    """The text without the key."""
    key = os.environ.get("OPENAI_API_KEY")
    return text.replace(key, "***") if key else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of the API, such as http://localhost:8000/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True, help="a file with {source}")
    parser.add_argument("--completion", action="store_true", help="/completions instead of /chat/completions")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--parallel", type=int, default=16, help="requests at a time")
    parser.add_argument("--attempts", type=int, default=8, help="for a request, with a back-off at 429 and 5xx")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds before the second attempt")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a reply")
    parser.add_argument("--price", type=float, nargs=2, default=(0.0, 0.0), help="for a million tokens in, and out")
    client = Client(parser.parse_args())
    with ThreadPoolExecutor(client.options.parallel) as pool:
        for line in sys.stdin:
            pool.submit(client.answer, json.loads(line))
    print(client.summary(), file=sys.stderr)


if __name__ == "__main__":
    main()
