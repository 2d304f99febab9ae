#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bpe/: a small byte-level tokenizer of Hugging Face's package `tokenizers`, trained on the Shakespeare text, and
the ids that the package gives to some texts. Needs: pip install tokenizers==0.23.3. Run it in this folder."""
import json
import pathlib

from tokenizers import ByteLevelBPETokenizer

TEXTS = [
    "First Citizen:\nBefore we proceed any further, hear me speak.\n",
    "I'll say they've, we're, he'd, it's, can't, I'm; 'LL is no contraction",
    "  two spaces,   three\t\ttabs \n\n\n  and lines  ",
    "12345 and 3.14, x2y; 100%",
    "naïve café — “quoted” … ½ ²",
    "日本語 текст עברית",
    "emoji 😀👩‍💻 and no-break\u00a0space\u2003em",
    "a\u0301 combining, \u200bzero width",
    "!!!???...,,,---",
    "",
    " ",
    "\n",
    "<|endoftext|>",
]


def main():
    folder = pathlib.Path("bpe")
    folder.mkdir(exist_ok=True)
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train("shakespeare/input.txt", vocab_size=512, min_frequency=2, show_progress=False)
    tokenizer.save_model(str(folder))
    whole = tokenizer.encode(pathlib.Path("shakespeare/input.txt").read_text()).ids
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    checksum = 0
    for token in whole:
        checksum = (checksum * 31 + token) % 2**32
    expected = {"cases": cases, "shakespeare": {"numel": len(whole), "checksum": checksum}}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=True) + "\n")


main()
