# SPDX-License-Identifier: Apache-2.0
#
# read_events.py <run folder>: the scalars that tensorboard reads there are the numbers of metrics.jsonl, by tag and step,
# as fp32; its texts are config.json and the summary.
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def fp32(value):
    return struct.pack("<f", float("nan") if value is None else value)


def expected_scalars(lines):
    scalars = {}
    for line in lines:
        if "summary" in line:
            continue
        program = line.pop("program", None)
        step = line.pop("step")
        for name, value in line.items():
            tag = name if program is None else f"{program}/{name}"
            scalars.setdefault(tag, []).append((step, fp32(value)))
    return scalars


def text_of(events, tag):
    *_, tensor = events.Tensors(tag)  # tensorboard keeps those of an older file too
    return tensor.tensor_proto.string_val[0].decode()


def main():
    folder = pathlib.Path(sys.argv[1])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = next(line["summary"] for line in lines if "summary" in line)
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    expected = expected_scalars(lines)
    assert set(events.Tags()["scalars"]) == set(expected), (events.Tags()["scalars"], sorted(expected))
    for tag, points in expected.items():
        read = [(e.step, fp32(e.value)) for e in events.Scalars(tag)]
        assert read == points, (tag, read, points)
    assert len(expected) >= 8 and any(tag.endswith("loss") for tag in expected), sorted(expected)
    assert json.loads(text_of(events, "config")) == json.loads((folder / "config.json").read_text())
    assert json.loads(text_of(events, "summary")) == summary
    for event in events.Scalars(next(iter(expected))):
        assert abs(event.wall_time - folder.stat().st_mtime) < 3600, event
    print(f"{len(expected)} scalars, {sum(map(len, expected.values()))} points, config and summary are equal")


main()
