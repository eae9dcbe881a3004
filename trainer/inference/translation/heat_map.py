"""Attention as pictures: a row of panels for each translation, a panel for each decoder layer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
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
    font, rows = _font(), []
    for attention in attentions:
        layers = range(len(attention.weights)) if layer is None else [layer - 1]
        rows.append(_joined([_panel(attention, number, font) for number in layers], axis=1))
    return Image.fromarray(_joined(rows, axis=0))


def _panel(attention: Attention, layer: int, font: Font) -> NDArray[np.uint8]:
    rows, columns = [*attention.target_pieces, END], attention.source_pieces
    labels = [[_label(piece) for piece in pieces] for pieces in (rows, columns)]
    left, top = (MARGIN + max(int(font.getlength(text)) + 1 for text in texts) for texts in labels)
    top += CELL  # the title's line
    cells = np.kron(255 * (1 - np.clip(attention.weights[layer], 0, 1)), np.ones((CELL, CELL))).astype(np.uint8)
    cells[::CELL] = cells[:, ::CELL] = 225
    panel = Image.new("L", (left + max(cells.shape[1], 4 * CELL), top + len(cells)), 255)
    panel.paste(Image.fromarray(cells), (left, top))
    pen = ImageDraw.Draw(panel)
    pen.text((left, 2), f"layer {layer + 1}", fill=0, font=font)
    for row, text in enumerate(labels[0]):
        pen.text((left - MARGIN // 2, top + row * CELL + CELL // 2), text, fill=0, font=font, anchor="rm")
    for column, text in enumerate(labels[1]):
        label = Image.new("L", (top - CELL, CELL), 255)
        ImageDraw.Draw(label).text((MARGIN // 2, CELL // 2), text, fill=0, font=font, anchor="lm")
        panel.paste(label.rotate(90, expand=True), (left + column * CELL, CELL))
    return np.asarray(panel)


def _joined(pictures: Sequence[NDArray[np.uint8]], *, axis: int) -> NDArray[np.uint8]:
    """Pictures below one another (axis 0) or side by side (axis 1), on white."""
    size = max(picture.shape[1 - axis] for picture in pictures)
    pads = [[(MARGIN, MARGIN), (MARGIN, MARGIN)] for _ in pictures]
    for pad, picture in zip(pads, pictures, strict=True):
        pad[1 - axis] = MARGIN, MARGIN + size - picture.shape[1 - axis]
    return np.concatenate(
        [np.pad(one, pad, constant_values=255) for one, pad in zip(pictures, pads, strict=True)], axis
    )


def _label(piece: str) -> str:
    text = piece.replace(WORD_BEGIN, "_")
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _font() -> Font:
    for name in FONTS:
        try:
            return ImageFont.truetype(name, size=CELL * 2 // 3)
        except OSError:
            continue
    return ImageFont.load_default(size=CELL * 2 // 3)
