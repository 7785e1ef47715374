#!/usr/bin/env python3
"""TensorBoard beside log.jsonl. Optional: needs tensorboard.

  python3 test/interop/compare_tensorboard.py [--bin ./lockstep] [--kills 3]

A small run is killed three times, each time a few steps after a checkpoint, and continues. Then TensorBoard must have exactly the scalars of log.jsonl,
the samples and the settings: with its EventAccumulator, with one that has read along while the run was killed, and over HTTP with both of its loaders
(--load_fast false and true). Every record must be what TensorBoard's own classes make of its contents, byte for byte.
"""
import argparse, json, logging, os, pathlib, re, signal, struct, subprocess, sys, tempfile, time, urllib.error, urllib.parse, urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
from tensorboard.version import VERSION

logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of each start that it forgets something for

TOP = pathlib.Path(__file__).resolve().parents[2]
STEPS, EVERY = 400, 20
RUN = f"""[run]
name = mine
dir = runs
steps = {STEPS}
[model]
layers = 1
heads = 2
embed = 16
context = 32
vocab = 256
[data]
train = data-train-*.bin
val = data-val-*.bin
[batch]
global = 4
micro = 2
[optimizer]
lr = 6e-4
[schedule]
warmup = 2
[checkpoint]
every = {EVERY}
[eval]
every = 10
batches = 2
text = note
[sample]
every = 100
tokens = 30
[log]
every = 1
tensorboard = yes
"""
TAGS = {
    "step": {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "loss_scale": "train/loss_scale", "skipped": "train/skipped",
             "tokens_per_s": "speed/tokens_per_s", "ms": "speed/ms", "data_wait_ms": "speed/data_wait_ms", "comm_wait_ms": "speed/comm_wait_ms",
             "mfu": "speed/mfu", "resident": "memory/resident", "device_bytes": "memory/device_bytes"},
    "eval": {"loss": "eval/loss", "bits_per_byte": "eval/bits_per_byte"},
}


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def records(kind=None):
    text = pathlib.Path("runs/mine/log.jsonl").read_text()
    lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    return [r for r in lines if kind in (None, r["t"])]


def expected():
    """{tag: [(step, value), ...]} of log.jsonl."""
    found = {}
    for r in records():
        for key, tag in TAGS.get(r["t"], {}).items():
            if r[key] is not None:
                found.setdefault(tag, []).append((r["step"], float32(r[key])))
    return found


def last_logged():
    try:
        return records("step")[-1]["step"]
    except (OSError, IndexError):
        return 0


def killed_after(bin, step):
    run = subprocess.Popen([bin, "run.ini"], stdout=subprocess.DEVNULL, start_new_session=True)
    while last_logged() < step:
        if run.poll() is not None:
            sys.exit(f"the run ended with {run.returncode} before step {step}")
        time.sleep(0.002)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return last_logged()


def check_bytes():
    """Number of records, and of those that TensorBoard would have written in another way."""
    count = other = 0
    for path in sorted(pathlib.Path("runs/mine").glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            body = data[at + 12:at + 12 + size]
            at += size + 16
            count += 1
            other += event_pb2.Event.FromString(body).SerializeToString(deterministic=True) != body
    return count, other


def new_reader():
    return EventAccumulator("runs/mine", size_guidance={"scalars": 0, "tensors": 0})


def of_accumulator(reader):
    reader.Reload()
    scalars = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    texts = [(e.step, tensor_util.make_ndarray(e.tensor_proto)[0].decode()) for e in reader.Tensors("sample")]
    data = reader.PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(data["_hparams_/session_start_info"]).session_start_info
    end = plugin_data_pb2.HParamsPluginData.FromString(data["_hparams_/session_end_info"]).session_end_info
    settings = {key: getattr(v, v.WhichOneof("kind")) for key, v in start.hparams.items()}
    return scalars, texts, settings, end.status


def complain(what, found, wanted):
    if found != wanted:
        print(f"  {what}: {str(found)[:300]}, expected {str(wanted)[:300]}")
    return found != wanted


def check_reader(what, reader, wanted):
    scalars, texts, settings, status = of_accumulator(reader)
    wrong = complain("tags", sorted(scalars), sorted(wanted)) + sum(complain(tag, scalars.get(tag), wanted[tag]) for tag in wanted)
    wrong += complain("steps of samples", [step for step, _ in texts], [r["step"] for r in records("sample")])
    wrong += complain("samples", all(text.startswith("    One") for _, text in texts), True)
    known = {"optimizer.lr": 6e-4, "batch.global": 4, "model.type": "gpt", "data.shuffle": True, "precision.loss_scale": "dynamic"}
    wrong += complain("settings", {key: settings.get(key) for key in known}, known) + complain("status", status, 1)
    print(f"{what}: {len(scalars)} scalars, {sum(map(len, scalars.values()))} values, {len(texts)} samples, {len(settings)} settings: "
          f"{'WRONG' if wrong else 'right'}", flush=True)
    return wrong


def ask(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/data/plugin/{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def of_http(port, tags):
    scalars = {}
    for tag in tags:
        points = ask(port, "scalars/scalars?" + urllib.parse.urlencode({"tag": tag, "run": "mine"}))
        scalars[tag] = [(int(step), float32(value)) for _, step, value in points]
    texts = ask(port, "text/text?" + urllib.parse.urlencode({"tag": "sample", "run": "mine"}))
    groups = ask(port, "hparams/session_groups", {"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "colParams": [], "startIndex": 0, "sliceSize": 10})
    settings = groups["sessionGroups"][0]["hparams"] if groups["sessionGroups"] else {}
    return scalars, [t["step"] for t in texts], settings, groups["sessionGroups"]


def answers(port, wanted):
    """Once it has read all there is, within a minute."""
    found = None
    for _ in range(120):
        try:
            found = of_http(port, wanted)
            if found[0] == wanted and found[3]:
                break
        except (urllib.error.URLError, KeyError, OSError):
            pass
        time.sleep(0.5)
    return found


def check_http(fast, wanted):
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "runs", "--host", "127.0.0.1", "--port", "0", "--load_fast", fast]
    with open("board.log", "wb") as log:
        board = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(120):
            at = re.search(rb"http://127\.0\.0\.1:(\d+)/", pathlib.Path("board.log").read_bytes())
            if at or board.poll() is not None:
                break
            time.sleep(0.5)
        found = answers(int(at.group(1)), wanted) if at else None
    finally:
        board.terminate()
        board.wait()
    if not found:
        print(f"  --load_fast {fast}: no answer: {pathlib.Path('board.log').read_text()[-600:]}")
        return 1
    scalars, texts, settings, groups = found
    wrong = sum(complain(tag, scalars.get(tag), wanted[tag]) for tag in wanted)
    wrong += complain("steps of samples", texts, [r["step"] for r in records("sample")])
    known = {"optimizer.lr": 6e-4, "model.type": "gpt", "data.shuffle": True}
    wrong += complain("settings", {key: settings.get(key) for key in known}, known) + complain("runs that ended well", len(groups), 1)
    print(f"HTTP, --load_fast {fast}: {len(scalars)} scalars, {sum(map(len, scalars.values()))} values, {len(texts)} samples, {len(settings)} settings: "
          f"{'WRONG' if wrong else 'right'}", flush=True)
    return wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default=str(TOP / "lockstep"))
    p.add_argument("--kills", type=int, default=3)
    a = p.parse_args()
    bin, wrong = os.path.abspath(a.bin), 0
    print(f"TensorBoard {VERSION}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("text").write_bytes((TOP / "LICENSE").read_bytes() * 3)
        pathlib.Path("note").write_text("The Software is provided as it stands.\n")
        pathlib.Path("run.ini").write_text(RUN)
        pathlib.Path("pack.ini").write_text("[pack]\ninput = text\noutput = data\nval_fraction = 0.2\n")
        subprocess.run([bin, "pack", "pack.ini"], check=True, stdout=subprocess.DEVNULL)
        along, at = new_reader(), []
        for kill in range(a.kills):
            at.append(killed_after(bin, (kill + 1) * STEPS // (a.kills + 2) + EVERY // 2))
            along.Reload()
        subprocess.run([bin, "run.ini"], check=True, stdout=subprocess.DEVNULL)
        files, wanted = list(pathlib.Path("runs/mine").glob("events.out.tfevents.*")), expected()
        wrong += complain("files", len(files), a.kills + 1)
        count, other = check_bytes()
        print(f"killed after steps {at}, {STEPS} in all; {len(files)} files, {count} records, {other} not as TensorBoard writes them")
        wrong += other
        wrong += check_reader("EventAccumulator", new_reader(), wanted)
        wrong += check_reader("one that has read along", along, wanted)
        wrong += check_http("false", wanted) + check_http("true", wanted)
        os.chdir("/")
    print(f"{wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main() != 0)
