"""A call of the command line as plain data, and what became of it."""

import json
import shlex
from dataclasses import asdict, dataclass, field

SHOWN = 120
"""Characters of an argument in what people read."""
OUTPUT_OPTIONS = ("-o", "--output", "--alignment", "--attention", "--to", "--jsonl")


@dataclass(kw_only=True, frozen=True)
class Call:
    """What is typed, and where. Made in the folder that `places.build` fills."""

    argv: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Written into the folder first."""
    environment: dict[str, str] = field(default_factory=dict)
    stdin: str = "null"
    """null, closed, text, binary, write-only. (Of a folder Python itself says so and ends.)"""
    stdout: str = "file"
    """file, closed, full, gone (a pipe that nobody reads), read-only."""
    stderr: str = "file"
    starts_ranks: bool = False
    """It is near enough to right to train."""
    forged: dict[str, str] = field(default_factory=dict)
    """Files of a stranger's folders by what takes their place (`forgery.py`). Such a call is watched."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Call":
        """What `to_json` gave."""
        tree = json.loads(text)
        return cls(**{**tree, "argv": tuple(tree["argv"])})

    @property
    def trains(self) -> bool:
        """It is of a command that may train: asked to stop when its time is over, it must."""
        return self.argv[0] in ("train", "launch")

    def names(self) -> tuple[set[str], set[str]]:
        """What it names that may be an input, and as an output."""
        inputs, outputs = set[str](), set[str]()
        before = ""
        for word in self.argv:
            option, _, value = word.partition("=")
            (outputs if before in OUTPUT_OPTIONS else inputs).add(word)
            (outputs if option in OUTPUT_OPTIONS else inputs).add(value)
            if word.startswith("-o"):
                outputs.add(word[2:])
            before = word
        if self.argv[0] == "score" and len(self.argv) > 1:  # what it is given gets scores
            outputs.add(self.argv[1])
        return inputs, outputs

    def reproduction(self) -> str:
        """How to make it again, and what it is in a shell's words."""
        given = " ".join(f"{k}={shlex.quote(v)}" for k, v in self.environment.items())
        words = (w if len(w) <= SHOWN else f"{w[:SHOWN]}...({len(w)} characters)" for w in self.argv)
        typed = shlex.join(["zeromt", *words]).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        streams = f"stdin={self.stdin} stdout={self.stdout} stderr={self.stderr}"
        files = "".join(f"\n    {name}: {text!r}" for name, text in (self.files | self.forged).items())
        return (
            f"  {given} {typed}   [{streams}]{files}\n"
            f"  again: python -m tests.fuzz.replay {shlex.quote(self.to_json())}"
        )


@dataclass(kw_only=True, frozen=True)
class Outcome:
    """What became of a call."""

    code: int
    """The exit code, or minus the signal that ended it."""
    out: str
    err: str
    seconds: float
    timed_out: bool
    """It ran when its time was over. One that may train was then asked to stop with SIGTERM."""
    hung: bool
    """And did not stop, or could not be asked: it was killed."""
    left: tuple[str, ...]
    """Processes that were still there when it had ended, by their command lines."""
    memory_bytes: int = 0
    """The most that it, or a process of its, held at a time."""
    cpu_seconds: float = 0.0
    opened: tuple[str, ...] = ()
    """Of a watched call: what Python code opened, by absolute paths."""
