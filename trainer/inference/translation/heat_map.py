"""Attention as pictures: a row of panels for each translation, a panel for each decoder layer."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data_pipeline.tag_pieces import WORD_BEGIN
from trainer.inference.translation.words import Attention

CELL = 22
"""Side of a cell in pixels; labels are as high as a cell allows."""
MARGIN = 8
MAX_LABEL = 16
"""Maximum number of characters of a label; longer pieces are cut."""
FONTS = ("NotoSansCJK-Regular.ttc", "DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf")
"""Fonts to try, in this order; the fallback, Pillow's own font, has only Latin letters."""
END = "</s>"

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw(attentions: Sequence[Attention], *, layer: int | None = None) -> Image.Image:
    """Heat maps of the attention to the source, for each decoder layer, averaged over heads; dark is 1, white is 0.

    A panel's rows are the pieces of the translation with EOS, each at the position that predicts it; its columns are
    the pieces of the source. `_` marks the beginning of a word.

    Args:
        attentions: one for each translation.
        layer: draw only this one, counted from 1.
    """
    font = _font()
    rows = []
    for attention in attentions:
        layers = range(len(attention.weights)) if layer is None else [layer - 1]
        rows.append(_side_by_side([_panel(attention, number, font) for number in layers]))
    return _stack(rows)


def _panel(attention: Attention, layer: int, font: Font) -> Image.Image:
    weights_TS = attention.weights[layer]
    rows, columns = [_label(p) for p in [*attention.target_pieces, END]], [_label(p) for p in attention.source_pieces]
    left = _width(rows, font) + MARGIN
    top = _width(columns, font) + MARGIN + CELL  # the title's line
    grey = Image.fromarray((255 * (1 - np.clip(weights_TS, 0, 1))).astype(np.uint8))
    cells = grey.resize((CELL * len(columns), CELL * len(rows)), Image.Resampling.NEAREST)
    title = f"layer {layer + 1}"
    width = max(left + cells.width + 1, left + _width([title], font))
    panel = Image.new("L", (width, top + cells.height + 1), 255)
    panel.paste(cells, (left, top))
    pen = ImageDraw.Draw(panel)
    pen.text((left, 2), title, fill=0, font=font)
    for i in range(len(columns) + 1):
        pen.line([(left + i * CELL, top), (left + i * CELL, top + cells.height)], fill=225)
    for j in range(len(rows) + 1):
        pen.line([(left, top + j * CELL), (left + cells.width, top + j * CELL)], fill=225)
    for j, text in enumerate(rows):
        pen.text((left - MARGIN // 2, top + j * CELL + CELL // 2), text, fill=0, font=font, anchor="rm")
    for i, text in enumerate(columns):
        label = Image.new("L", (top - CELL, CELL), 255)
        ImageDraw.Draw(label).text((MARGIN // 2, CELL // 2), text, fill=0, font=font, anchor="lm")
        panel.paste(label.rotate(90, expand=True), (left + i * CELL + 1, CELL))
    return panel


def _side_by_side(panels: Sequence[Image.Image]) -> Image.Image:
    width = sum(p.width + 2 * MARGIN for p in panels)
    row = Image.new("L", (width, max(p.height for p in panels) + 2 * MARGIN), 255)
    x = MARGIN
    for panel in panels:
        row.paste(panel, (x, MARGIN))
        x += panel.width + 2 * MARGIN
    return row


def _stack(rows: Sequence[Image.Image]) -> Image.Image:
    picture = Image.new("L", (max(r.width for r in rows), sum(r.height for r in rows)), 255)
    y = 0
    for row in rows:
        picture.paste(row, (0, y))
        y += row.height
    return picture


def _label(piece: str) -> str:
    text = piece.replace(WORD_BEGIN, "_")
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _width(texts: Sequence[str], font: Font) -> int:
    return int(max(font.getlength(text) for text in texts)) + 1


def _font() -> Font:
    for name in FONTS:
        try:
            return ImageFont.truetype(name, size=CELL * 2 // 3)
        except OSError:
            continue
    return ImageFont.load_default(size=CELL * 2 // 3)
