# SPDX-License-Identifier: Apache-2.0
"""Types of arguments of the benchmarks, and names among those that are known."""
import argparse


def _whole(text, least):
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} on; give one")
    return int(text)


def count(text):
    return _whole(text, 1)


def count_or_none(text):
    return _whole(text, 0)


def counts(text):
    return [count(word) for word in text.split(",")]


def seeds(text):
    return [_whole(word, 0) for word in text.split(",")]


def names(text):
    return [name for name in text.split(",") if name]


def require_known(parser, flag, given, known, kind):
    """Ends the script where no name is given, or one that is not known."""
    if not given:
        parser.error(f"{flag} is empty; choose from {', '.join(known)}")
    for name in given:
        if name not in known:
            parser.error(f"{flag} {name}: there is no such {kind}; choose from {', '.join(known)}")
