"""Reads a run's TensorBoard file with TensorBoard itself, and compares it with metrics.jsonl.

    python tools/interop/tensorboard_events.py RUN_FOLDER

RUN_FOLDER is that of a run with `logging: {tensorboard: true}`. Needs `tensorboard` from PyPI.
"""

import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main():
    run = pathlib.Path(sys.argv[1])
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    read = {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in tags}
    for tag, value in [("loss", lambda row: row["loss"]), ("grad_norm", lambda row: row["grad_norm"]),
                       ("step/seconds", lambda row: sum(row["seconds"].values()))]:
        expected = {row["step"]: f32(value(row)) for row in rows if value(row) is not None}
        assert read[tag] == expected, f"{tag}: {read[tag]} instead of {expected}"
    rates = [tag for tag in tags if tag.startswith("lr/")]
    assert rates and all(sorted(read[tag]) == [row["step"] for row in rows] for tag in rates), rates
    for name in rows[0].get("adapted", {}):
        assert read[f"adapted/{name}"] == {row["step"]: f32(row["adapted"][name]) for row in rows}, name
    print(f"{len(rows)} steps, tags {', '.join(tags)}: as in metrics.jsonl")


if __name__ == "__main__":
    main()
