"""The pocket tokenizer: a sentencepiece model of the instructions, and the added tokens in the reference's order.

Full size has the same two files (MODEL.md section 2), so both share one prompt builder.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

from animegamer_export.checkpoints.added_tokens import added_tokens


def train_tokenizer(texts: Iterable[str], pieces: int, folder: Path) -> int:
    """Trains a tokenizer of `pieces` pieces; writes tokenizer.model and added_tokens.json into `folder`.

    Returns the vocabulary size with the added tokens, rounded up to a multiple of 8 for the engines' matrix products.
    Byte fallback covers any text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sorted(set(texts))),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        byte_fallback=True,
        character_coverage=1.0,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    words = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    first = int(words.get_piece_size())
    ids = {token: first + n for n, token in enumerate(added_tokens())}
    (folder / "added_tokens.json").write_text(json.dumps(ids, indent=0) + "\n", encoding="utf-8")
    return math.ceil((first + len(ids)) / 8) * 8
