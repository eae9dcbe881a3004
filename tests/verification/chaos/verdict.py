"""Whether a storm has changed anything: its segments beside references that nothing disturbed.

A *chain* is all that was trained in one layout from one checkpoint on, over as many starts as it took: a segment that
resumed in the same layout from a checkpoint of the chain belongs to it. One reference is made for each chain, from the
same checkpoint to the chain's last step. Its figures must equal those of every segment of the chain, bit for bit, and
its checkpoints those that the chain wrote: so it is the reference, too, from every checkpoint within the chain. Where
the layout changed, the reference of the chain that the checkpoint is from goes 20 updates beyond it, and the losses of
both must agree to 1e-5.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.verification.chaos.damage import read_json_lines
from tests.verification.chaos.job import HOME, Job, Layout
from tests.verification.chaos.watch import Segment, Version, Watch

NUM_ELSEWHERE = 20
RELATIVE = 1e-5


@dataclass(kw_only=True, slots=True)
class Chain:
    """What was trained in one layout from one checkpoint on."""

    layout: Layout
    root: Version | None
    """None for the run's beginning."""
    parent: "Chain | None" = None
    """The chain that the root is a checkpoint of, in another layout."""
    segments: list[Segment] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    last: int = 0
    """The last step that its reference must reach."""

    @property
    def start(self) -> int:
        """The root's step."""
        return self.root.step if self.root else 0

    def holds(self, root: Version | None) -> bool:
        """Whether a segment that resumed from this checkpoint resumed from a state of the chain."""
        if root is None:
            return self.root is None
        mine = [v for v in (self.root, *self.versions) if v is not None]
        return any((root.step, root.digest) == (v.step, v.digest) for v in mine)


@dataclass(kw_only=True, slots=True)
class Reference:
    """An undisturbed run from a checkpoint."""

    segment: Segment
    versions: Mapping[int, str]
    """Digest of its checkpoints, by step."""


@dataclass(kw_only=True, slots=True)
class Findings:
    """What was compared."""

    num_updates: int = 0
    """Compared bit for bit."""
    num_checkpoints: int = 0
    num_elsewhere: int = 0
    """Chains compared with the one that they come from, in another layout."""
    largest_difference: float = 0.0
    """Relative, between layouts, within the first 20 updates."""
    violations: list[str] = field(default_factory=list)


def chains_of(segments: Sequence[Segment], versions: Iterable[Version], *, max_updates: int) -> list[Chain]:
    """Chains in the order in which they began; the first is the undisturbed run's, from step 0 to the end."""
    by_segment: dict[int, list[Version]] = {}
    for version in versions:
        by_segment.setdefault(version.segment, []).append(version)
    chains = [Chain(layout=HOME, root=None, last=max_updates)]
    for index, segment in enumerate(segments):
        if not segment.figures:
            continue
        origin = [c for c in chains if c.holds(segment.root)]
        chain = next((c for c in origin if c.layout == segment.layout), None)
        if chain is None:
            parent = origin[0] if origin else None
            chain = Chain(layout=segment.layout, root=segment.root, parent=parent)
            chains.append(chain)
            if parent is not None:
                parent.last = max(parent.last, segment.start + NUM_ELSEWHERE)
        chain.segments.append(segment)
        chain.versions += by_segment.get(index, [])
        chain.last = max(chain.last, segment.last)
    return chains


def make_reference(job: Job, chain: Chain, number: int) -> Reference:
    """Train from a chain's root to its last step, in its layout.

    Raises:
        RuntimeError: the reference did not end well.
    """
    mine = job.named(f"reference-{number}")
    checkpoints = mine.folder / "checkpoints"
    if chain.root is not None:
        assert chain.root.copy is not None, "the watch keeps what a segment started from"
        folder = checkpoints / f"step-{chain.root.step:08d}"
        folder.mkdir(parents=True)
        for path in chain.root.copy.iterdir():
            (folder / path.name).hardlink_to(path)
    watch = Watch(mine.folder, None)
    watch.begin_launch(number, chain.layout)
    launch = mine.start(chain.layout, number=number, max_updates=chain.last)
    code = launch.wait(300 + 2 * (chain.last - chain.start))
    if code != 0:
        launch.kill()
        raise RuntimeError(f"reference {number} ended with {code}:\n{launch.tail()}")
    watch.finish()
    segment = watch.segments[-1]
    segment.start = chain.start
    return Reference(segment=segment, versions={v.step: v.digest for v in watch.versions})


def compare(chain: Chain, reference: Reference, of_parent: Reference | None, findings: Findings) -> None:
    """Add to the findings what a chain differs in from its reference, and its first updates from its parent's."""
    name = f"{chain.layout} from step {chain.start}"
    theirs = reference.segment.figures
    for segment in chain.segments:
        findings.num_updates += len(segment.figures)
        different = [s for s, figures in segment.figures.items() if figures != theirs.get(s)]
        if different:
            step = different[0]
            what = [k for k, v in segment.figures[step].items() if v != theirs.get(step, {}).get(k)]
            findings.violations.append(
                f"launch {segment.launch} ({name}, resumed from {segment.start}): {len(different)} of "
                f"{len(segment.figures)} updates differ from the reference, first step {step} in {', '.join(what)}"
            )
    for version in chain.versions:
        if version.step in reference.versions:
            findings.num_checkpoints += 1
            if reference.versions[version.step] != version.digest:
                findings.violations.append(f"{name}: the checkpoint of step {version.step} is not the reference's")
    if of_parent is None:
        return
    findings.num_elsewhere += 1
    for step in range(chain.start + 1, chain.start + 1 + NUM_ELSEWHERE):
        if step in theirs and step in of_parent.segment.figures:
            ours, other = theirs[step]["loss"], of_parent.segment.figures[step]["loss"]
            difference = abs(ours - other) / abs(other)
            findings.largest_difference = max(findings.largest_difference, difference)
            if not difference <= RELATIVE:
                findings.violations.append(f"{name}: the loss of step {step} is off by {difference:.1e} elsewhere")


def compare_pairs(storm: Path, undisturbed: Path, segments: Iterable[Segment], num_pairs: int) -> tuple[list[str], int]:
    """What is wrong with the pairs of every update; and how many whole epochs there were.

    Args:
        segments: of the storm; each update of them must have held the undisturbed run's pairs, redone ones included.
        num_pairs: of the dataset.
    """
    problems = []
    ours, theirs = read_pairs(storm), read_pairs(undisturbed)
    if doubled := [key for key, lists in ours.items() if len(lists) > 1]:
        problems.append(f"{len(doubled)} entries of pairs/ are doubled, first {doubled[0]}")
    different = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    if different:
        step, lane = different[0]
        problems.append(f"{len(different)} entries of pairs/ differ, first of step {step}, lane {lane}")
    lines = [line for line in read_json_lines(undisturbed / "metrics.jsonl") if line["kind"] == "train"]
    digests = {line["step"]: (line["epoch"], line["update"], line["pairs_digest"]) for line in lines}
    for segment in segments:
        for step, figures in segment.figures.items():
            found = figures["epoch"], figures["update"], figures["pairs_digest"]
            if step in digests and found != digests[step]:
                problems.append(f"launch {segment.launch}: step {step} held other pairs than the undisturbed run's")
                break
    used: dict[int, list[int]] = {}
    for (step, _), lists in ours.items():
        if step in digests:
            used.setdefault(digests[step][0], []).extend(identifier for ids in lists for identifier in ids)
    for epoch, identifiers in used.items():
        if len(set(identifiers)) != len(identifiers):
            problems.append(f"epoch {epoch}: a pair was used more than once")
        elif epoch < max(used) and sorted(identifiers) != list(range(num_pairs)):
            problems.append(f"epoch {epoch}: {num_pairs - len(identifiers)} pairs were not used")
    return problems, len(used) - 1


def steps_problem(run: Path, max_updates: int) -> list[str]:
    """Whether metrics.jsonl has every update once, in order."""
    steps = [line["step"] for line in read_json_lines(run / "metrics.jsonl") if line["kind"] == "train"]
    return [] if steps == list(range(1, max_updates + 1)) else ["metrics.jsonl does not hold every update once"]


def read_pairs(run: Path) -> dict[tuple[int, int], list[list[int]]]:
    """Identifiers by (step, lane), from the files of all ranks; once for each entry."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for path in (run / "pairs").glob("rank-*.jsonl"):
        for line in read_json_lines(path):
            found.setdefault((line["step"], line["lane"]), []).append(line["pairs"])
    return found
