"""Tables of the page's parts, and the verdicts that follow from them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]
Known = Mapping[str, Figures]
"""Figures of the cells that are known, by name."""
Cells = Sequence[Mapping[str, str]]
GIB = 1 << 30
AGREEMENT, COMPARED_UPDATES = 1e-2, 20
"""Losses of ZeRO stages differ at most by this, relative, in the first updates."""
SIZED = re.compile(r"(base|big) (\d+) (plain|cuda)")


def markdown(rows: Cells) -> str:
    """A Markdown table; the columns are those of the first row."""
    if not rows:
        return ""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row.get(c, "") for c in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def part(letter: str, mine: Known, known: Known) -> str:
    """The tables of a part.

    Args:
        letter: of the part.
        mine: the part's cells.
        known: all cells, for the card's rate.
    """
    return "\n".join(filter(None, (_whatever_happens(table, mine, known) for table in PARTS[letter])))


def _whatever_happens(table: Callable[[Known, Known], str], mine: Known, known: Known) -> str:
    """A table; what earlier code has kept in another form must not end what is being measured."""
    try:
        return table(mine, known)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"`{table.__name__}`: cannot be shown, {error!r}; the figures are in the file of results.\n"


def rate(known: Known) -> float | None:
    """FLOP/s at which the MFU would be 1."""
    machine = known.get("machine")
    return None if machine is None else machine["listed_flops"] or machine["matmul_flops"]


def mfu(figures: Figures, known: Known) -> str:
    """The MFU, or nothing as long as the card's rate is not known."""
    full = rate(known)
    return "?" if full is None else f"{figures['tokens_per_second'] * figures['flops_per_target_token'] / full:.1%}"


def machine(mine: Known, known: Known) -> str:
    """Doctor's findings that are not good, and the card's rate."""
    if "machine" not in mine:
        return ""
    found = mine["machine"]
    bad = [f for f in found["doctor"] if f["grade"] != "good"]
    good = len(found["doctor"]) - len(bad)
    listed = "not in the list" if found["listed_flops"] is None else f"{found['listed_flops'] / 1e12:,.0f} listed"
    said = [
        f"Square bf16 matmuls: {found['matmul_flops'] / 1e12:,.2f} TFLOP/s at best ({listed}).",
        f"nvidia-smi: {found['driver'] or 'not there'}.",
        f"`zeromt doctor`: {good} checks passed.",
        *(f"- {f['grade']}: {f['subject']}: {f['said']} -> {f['fix']}" for f in bad),
    ]
    return "\n".join(said) + "\n"


def kernels(mine: Known, known: Known) -> str:
    """Errors and milliseconds of each kernel."""
    rows = [
        {
            "kernel": row["kernel"],
            "right": f"{'yes' if row['right'] else '**NO**'} ({row['off']:.1e})",
            "plain ms": f"{row['plain_ms']:.3f}",
            "ours ms": f"{row['ours_ms']:.3f}",
            "speed-up": f"{row['speed_up']:.2f}",
            "plain ms with launches": f"{row['plain_waited_ms']:.3f}",
            "ours": f"{row['ours_waited_ms']:.3f}",
            "ours TB/s at least": f"{row['moved_gb'] / row['ours_ms']:.2f}" if "moved_gb" in row else "",
            "plain MiB": f"{row['plain_mib']:.1f}",
            "ours MiB": f"{row['ours_mib']:.1f}",
        }
        for name, cell in mine.items()
        for row in cell.get("kernels", ())
    ]
    return markdown(rows)


def updates(mine: Known, known: Known) -> str:
    """Rate, memory and the parts of a pass."""
    rows = [
        {
            "cell": name,
            "target tokens/s": f"{f['tokens_per_second']:,.0f}",
            "MFU": mfu(f, known),
            "ms an update": f"{1e3 * f['seconds_per_update']:.2f}",
            "pass: host ms": f"{1e3 * f['host_seconds']:.2f}",
            "device ms": milliseconds(f["device_seconds"]),
            "both ms": f"{1e3 * f['pass_seconds']:.2f}",
            "MHz": "" if f.get("megahertz") is None else f"{f['megahertz']:.0f}",
            "limit": limit(f),
            "attention": f["layout"],
            "GiB": gib(f["peak_allocated"]),
            "planned": planned(f),
            "padding": f"{f['padding']:.1%}" if f["layout"] in ("none", "padded") else f"{f['padding']:.1%}, skipped",
        }
        for name, f in mine.items()
        if "host_seconds" in f
    ]
    return markdown(rows)


def limit(figures: Figures) -> str:
    """What a pass waits for.

    The host is as slow as a busy device where launches are more than the device queues: a busy device is asked first.
    """
    if figures["device_seconds"] is None:
        return "unknown"
    is_busy = figures["device_seconds"] >= 0.85 * figures["pass_seconds"]
    return "host" if not is_busy and figures["host_seconds"] >= 0.9 * figures["pass_seconds"] else "device"


def milliseconds(seconds: float | None) -> str:
    """Empty if it was not measured."""
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def gib(size: float | None) -> str:
    """Empty if it was not measured."""
    return "" if size is None else f"{size / GIB:.2f}"


def planned(figures: Figures) -> str:
    """GiB by `zeromt plan`, and how far that is from the peak."""
    peak, plan = figures["peak_allocated"], figures["planned_peak"]
    return gib(plan) if not peak else f"{gib(plan)} ({plan / peak - 1:+.1%})"


def verdicts(known: Known) -> str:
    """Which kernels earn their place, and what limits each size."""
    said = []
    for row in (row for cell in known.values() for row in cell.get("kernels", ())):
        verdict = "earns its place" if row["speed_up"] > 1 else "loses to plain"
        verdict = verdict if row["right"] else "is WRONG"
        said.append(f"- kernel `{row['kernel']}` {verdict}: {row['speed_up']:.2f} times as fast")
    for cell in known.values():
        ways = [way for way in cell.get("attention", ()) if "ms" in way]
        if ways:
            best = min(ways, key=lambda way: float(way["ms"]))
            said.append(f"- attention of {cell['rows']} rows of {cell['length']} tokens: {best['way']} is the fastest")
    for name, figures in known.items():
        match = SIZED.fullmatch(name)
        plain = known.get(f"{match[1]} {match[2]} plain") if match and match[3] == "cuda" else None
        if match and plain is not None:
            ratio = figures["tokens_per_second"] / plain["tokens_per_second"]
            verdict = "the kernels earn their place" if ratio > 1 else "the kernels lose to plain"
            said.append(
                f"- {match[1]} at {int(match[2]):,} tokens: {verdict}, {ratio:.2f} times as fast; "
                f"{mfu(figures, known)} MFU; limited by: {limit(figures)}"
            )
    return "\n".join(said or ["- nothing yet"]) + "\n"


def attentions(mine: Known, known: Known) -> str:
    """Ways to attend, by the length of rows."""
    rows = [
        {
            "rows": f"{cell['rows']} x {cell['length']} tokens",
            "way": way["way"],
            "ms": f"{way['ms']:.3f}" if "ms" in way else way["skipped"],
            "with launches": f"{way['waited_ms']:.3f}" if "ms" in way else "",
            "MiB": f"{way['mib']:.1f}" if "ms" in way else "",
            "off": f"{way['off']:.1e}" if "ms" in way else "",
        }
        for cell in mine.values()
        for way in cell.get("attention", ())
    ]
    return markdown(rows)


def hosts(mine: Known, known: Known) -> str:
    """A pass whose kernels do nothing."""
    rows = [
        {
            "preset": cell["preset"],
            "kernels": kind,
            "Python calls a pass": f"{found['calls']:,}",
            "host ms (no launches)": f"{1e3 * found['seconds']:.2f}",
        }
        for cell in mine.values()
        for kind, found in cell.get("host", {}).items()
    ]
    return markdown(rows)


def dearest(mine: Known, known: Known) -> str:
    """Kernels by their part of the time of an update."""
    out = []
    for name, cell in mine.items():
        if cell.get("operators"):
            rows = [
                {"kernel": f"`{o['name']}`", "calls": f"{o['calls']}", "share": f"{o['share']:.1%}"}
                for o in cell["operators"]
            ]
            out.append(f"`{name}`, three updates:\n\n{markdown(rows)}")
    return "\n".join(out)


def stages(mine: Known, known: Known) -> str:
    """Every ZeRO stage: rate, memory, losses beside those of the first."""
    found = {name: cell for name, cell in mine.items() if "setting" in cell}
    first = next(iter(found.values()), None)
    rows = [
        {
            "setting": cell["setting"],
            "ranks": str(cell["ranks"]),
            "target tokens/s": f"{cell['tokens_per_second']:,.0f}",
            "waiting for data": f"{cell['waiting_for_data']:.1%}",
            "GiB": gib(cell["peak_allocated"]),
            "planned": planned(cell),
            f"losses off {first['setting']}": agreement(cell["losses"], first["losses"]),
        }
        for cell in found.values()
        if first is not None
    ]
    return markdown(rows)


def agreement(losses: Sequence[float], others: Sequence[float]) -> str:
    """The largest relative difference of the first losses, and whether it is small enough."""
    off = worst_difference(losses, others)
    return f"{off:.1e}, {'holds' if off <= AGREEMENT else '**does not hold**'}"


def worst_difference(losses: Sequence[float], others: Sequence[float]) -> float:
    """The largest relative difference of the first losses; NaN if a loss is NaN."""
    pairs = list(zip(losses, others, strict=True))[:COMPARED_UPDATES]
    found = [abs(mine - other) / abs(other) for mine, other in pairs]
    return math.nan if any(map(math.isnan, found)) else max(found)


def resumed(mine: Known, known: Known) -> str:
    """A run that changes its device, beside one that stays on the CPU."""
    rows = [
        {"resumed on": part["device"], "losses off a run on the CPU": f"{part['off']:.1e}"}
        for cell in mine.values()
        for part in cell.get("resumed", ())
    ]
    return markdown(rows)


def programs(mine: Known, known: Known) -> str:
    """Other programs on the same pairs."""
    found = [cell for cell in mine.values() if "program" in cell]
    ours = next((cell["tokens_per_second"] for cell in found if cell["program"] == "zeromt"), None)
    rows = [
        {
            "program": cell["program"],
            "target tokens/s": f"{cell['tokens_per_second']:,.0f}",
            "MFU": mfu(cell, known),
            "zeromt over it": "" if ours is None else f"{ours / cell['tokens_per_second']:.2f}",
            "padding": f"{cell['padding']:.1%}",
            "GiB": gib(cell["peak_allocated"]),
        }
        for cell in found
    ]
    return markdown(rows)


def demos(mine: Known, known: Known) -> str:
    """The demo's BLEU and seconds."""
    rows = [
        {
            "BLEU": f"{cell['bleu']:.2f}",
            "updates": f"{cell['updates']:,}",
            **{f"{step}, s": f"{seconds:.1f}" for step, seconds in cell["demo_seconds"].items()},
        }
        for cell in mine.values()
        if "demo_seconds" in cell
    ]
    return markdown(rows)


def decoders(mine: Known, known: Known) -> str:
    """Greedy and beam search."""
    rows = [
        {
            "program": f"{row['program']} {row['dtype']}",
            "beam": str(row["beam"]),
            "sentences/s": f"{row['sentences_per_second']:,.0f}",
            "tokens/s": f"{row['tokens_per_second']:,.0f}",
        }
        for cell in mine.values()
        for row in cell.get("decoded", ())
    ]
    return markdown(rows)


def tests(mine: Known, known: Known) -> str:
    """Every test's line."""
    rows = [
        {
            "test": f"`{test['test'].removeprefix('tests/')}`",
            "outcome": test["outcome"] if test["outcome"] != "failed" else "**failed**",
            "s": f"{test['seconds']:.1f}",
            "why": test["reason"].replace("|", "\\|"),
        }
        for cell in mine.values()
        for test in cell.get("tests", ())
    ]
    late = [
        f"`{name}` was ended by its limit: tests that are not in the table did not end.\n"
        for name, cell in mine.items()
        if cell.get("is_late")
    ]
    return "\n".join([markdown(rows), *late])


PARTS: dict[str, tuple[Callable[[Known, Known], str], ...]] = {
    "a": (machine, kernels, updates),
    "b": (updates, hosts, attentions, kernels, dearest),
    "c": (stages, resumed, programs),
    "d": (demos, decoders, updates),
    "e": (tests,),
}
"""Each gets the figures of the part's cells, and of all."""
