# SPDX-License-Identifier: Apache-2.0
"""Reads the metrics.jsonl of a run. What can't be drawn ends the program with a sentence."""
import json
import sys


def read(path):
    """The objects of the file. A last row that a killed run has not finished is left out."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path} can't be read ({error}); give the metrics.jsonl of a run")
    objects = []
    for number, row in enumerate(rows, 1):
        try:
            objects.append(json.loads(row))
        except json.JSONDecodeError:
            if number < len(rows):
                sys.exit(f"{path}, row {number}, is no JSON; give the metrics.jsonl of a run")
    if not all(isinstance(o, dict) for o in objects):
        sys.exit(f"{path} has rows that are no objects; give the metrics.jsonl of a run")
    return objects


def with_numbers(objects, key, path):
    """Those that have a number under `key`; there is one at least. A number that is not finite is null in the file."""
    found = [o for o in objects if o.get(key) is not None]
    if not found:
        names = sorted({name for o in objects for name, value in o.items() if isinstance(value, (int, float))})
        sys.exit(f"no row of {path} has a number under {key}; the rows have {', '.join(names) or 'no numbers'}")
    return found
