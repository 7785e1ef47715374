#!/usr/bin/env python3
"""The records of an event file as TensorBoard's own classes write them, one a line in hexadecimal: tensorboard.txt.

  python3 make_tensorboard.py [--check]

The third record of a file, the settings, is left out (an empty line): it changes with each new key.
"""
import io, pathlib, sys
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

WALL = 1700000000.5


class Kept(io.BytesIO):
    def close(self):
        self.kept = self.getvalue()


def record(**fields):
    file = Kept()
    writer = RecordWriter(file)
    writer.write(event_pb2.Event(wall_time=WALL, **fields).SerializeToString(deterministic=True))
    writer.close()
    return file.kept.hex()


def scalars(step, values):
    return record(step=step, summary=summary_pb2.Summary(value=[{"tag": tag, "simple_value": x} for tag, x in values.items()]))


def plugin(step, tag, name, content=b"", **fields):
    metadata = {"plugin_data": {"plugin_name": name, "content": content}, **({"data_class": 2} if "tensor" in fields else {})}
    return record(step=step, summary={"value": [{"tag": tag, "metadata": metadata, **fields}]})


def main():
    step = {"train/loss": 3.25, "train/grad_norm": 0.1, "train/lr": 6e-4, "train/loss_scale": 65536, "train/skipped": 0,
            "speed/tokens_per_s": 327680, "speed/ms": 12.5, "speed/data_wait_ms": 0.25, "speed/mfu": 0.4375,
            "memory/resident": 98304, "memory/device_bytes": 3221225472, "speed/comm_ms": 3, "speed/comm_hidden": 0.75,
            "speed/slowest_rank": 1, "speed/slowest_compute_ms": 9, "speed/median_compute_ms": 8.5}
    power = {"power/watts": 250, "power/joules_per_token": 1e-3, "device/0/watts": 250, "device/0/mhz": 1980, "device/1/celsius": 61}
    last = {"train/lr": 0, "train/loss_scale": 0, "train/skipped": 0, "speed/tokens_per_s": 0, "speed/ms": 4, "speed/data_wait_ms": 0,
            "speed/comm_wait_ms": 0}
    text = {"dtype": 7, "tensor_shape": {"dim": [{"size": 1}]}, "string_val": ["    Once\n    a\ufffdtime\n    \u20ac".encode()]}
    end = plugin_data_pb2.HParamsPluginData(session_end_info={"status": 1, "end_time_secs": WALL})
    lines = [record(file_version="brain.Event:2", source_metadata={"writer": "lockstep.trainer.log"}),
             record(step=301, session_log={"status": 1}),
             "",
             scalars(301, step),
             scalars(301, {"eval/accuracy": 0.625, "eval/bits_per_byte": 1.5}),
             scalars(301, power),
             plugin(301, "sample", "text", tensor=text),
             scalars(600, last),
             plugin(600, "_hparams_/session_end_info", "hparams", end.SerializeToString(deterministic=True))]
    made, path = "".join(line + "\n" for line in lines), pathlib.Path(__file__).with_name("tensorboard.txt")
    if "--check" not in sys.argv:
        path.write_text(made)
    return path.read_text() != made


if __name__ == "__main__":
    sys.exit(main())
