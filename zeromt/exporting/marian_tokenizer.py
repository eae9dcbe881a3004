"""This project's tokenizer as Transformers' MarianTokenizer: SentencePiece models, and ids by piece."""

import json
from pathlib import Path
from typing import Any

from data_pipeline.tag_pieces import tag_of
from data_pipeline.tokenizer import EOS_ID, JOINT_FILE, SOURCE_FILE, TARGET_FILE, UNK_ID, Tokenizer
from zeromt.exporting.check import Text

_NUM_LINES = 200


def save_tokenizer(transformers: Any, tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """Write its files. Marian's tokenizer itself finds a tag at the beginning of a text and looks it up literally.

    Raises:
        OSError: they cannot be written.
    """
    files = tokenizer.files()
    spm = {"source": files.get(JOINT_FILE) or files[SOURCE_FILE], "target": files.get(JOINT_FILE) or files[TARGET_FILE]}
    for side, content in spm.items():
        (folder / f"{side}.spm").write_bytes(content)
    vocabularies = {"vocab.json": tokenizer.source_vocabulary()}
    if not tokenizer.is_joint:
        vocabularies["target_vocab.json"] = tokenizer.target_vocabulary()
    for name, pieces in vocabularies.items():
        ids = {tag_of(piece) or piece: i for i, piece in enumerate(pieces)}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False, indent=1), encoding="utf-8")
    transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        target_vocab_file=None if tokenizer.is_joint else str(folder / "target_vocab.json"),
        separate_vocabs=not tokenizer.is_joint,
        model_max_length=max_length,
        split_special_tokens=True,  # `</s>` in a text is ordinary text
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def check_tokenizer(theirs: Any, ours: Tokenizer, text: Text | None) -> list[str]:
    """Notes on differences between the two tokenizers on some text; empty if they agree or there is no text."""
    if text is None:
        return []
    sources, references = text.sources[:_NUM_LINES], text.references[:_NUM_LINES]
    encoded = theirs(sources, truncation=False)["input_ids"]
    wrong = sum([*ids, EOS_ID] != row for ids, row in zip(ours.encode_source(sources), encoded, strict=True))
    rows = [row for row in ours.encode_target(references) if UNK_ID not in row]  # theirs drops unknown pieces
    decoded = theirs.batch_decode([[*row, EOS_ID] for row in rows], skip_special_tokens=True)
    unlike = sum(a.strip() != b.strip() for a, b in zip(ours.decode_target(rows), decoded, strict=True))
    notes = []
    if wrong:
        notes.append(f"tokenizer: {wrong} of {len(sources)} sources have other pieces")
    if unlike:
        notes.append(f"tokenizer: {unlike} of {len(rows)} references are joined in another way")
    return notes
