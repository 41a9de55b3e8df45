"""One LoRA training step of the full-size SD 1.5 UNet at 512 px: velatura and diffusers + peft, in turn, in one command.

Needs the environment that peer_step.py names, and a release build. Writes its files below --work.
    python bench/side_by_side.py --work /tmp/bench [--rounds 3] [--steps 4] [--checkpointing]
Prints a line for each run, then medians with their spread, and the ratio ours / peer. The first step of each run warms caches and does not count.
"""
import argparse, json, os, statistics, subprocess, sys
import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """
name: bench
training_folder: {work}/output
model: {{name_or_path: {work}/sd15.safetensors}}
network: {{linear: 16, only_if_contains: [to_q, to_k, to_v, to_out]}}
datasets: [{{folder_path: {work}/pictures, resolution: 512}}]
train: {{steps: {steps}, batch_size: 1, gradient_checkpointing: {checkpointing}}}
save: {{save_every: 0}}
sample: {{sample_every: 0}}
"""


def prepare(a):
    os.makedirs(f"{a.work}/pictures", exist_ok=True)
    if not os.path.exists(f"{a.work}/sd15.safetensors"):
        subprocess.run([sys.executable, f"{HERE}/random_checkpoint.py", "sd15", f"{a.work}/sd15.safetensors"], check=True)
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 255, (512, 512, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"{a.work}/pictures/{i}.png")
        with open(f"{a.work}/pictures/{i}.txt", "w") as f:
            f.write(f"picture number {i}")
    with open(f"{a.work}/config.yaml", "w") as f:
        f.write(CONFIG.format(work=a.work, steps=a.steps, checkpointing=str(a.checkpointing).lower()))


def ours(a):
    subprocess.run([a.binary, "train", f"{a.work}/config.yaml", "--over"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(f"{a.work}/output/bench/metrics.jsonl") as f:
        rows = [json.loads(line) for line in f]
    return [sum(r["seconds"].values()) for r in rows[1:]], rows[-1]["peak_bytes"]


def peer(a):
    command = [sys.executable, f"{HERE}/peer_step.py", "--model", "sd15", "--res", "512", "--steps", str(a.steps)]
    done = subprocess.run(command + ["--checkpointing"] * a.checkpointing, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [r["total_s"] for r in rows[1:]], rows[-1]["peak_rss_bytes"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", required=True)
    p.add_argument("--binary", default=os.path.join(HERE, "..", "target", "release", "velatura"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--checkpointing", action="store_true")
    a = p.parse_args()
    prepare(a)
    seconds, peak = {"velatura": [], "peer": []}, {}
    for _ in range(a.rounds):
        for name, run in (("velatura", ours), ("peer", peer)):
            times, peak[name] = run(a)
            seconds[name] += times
            print(name, [round(t, 2) for t in times], f"{peak[name] / 1e9:.2f} GB", flush=True)
    for name, times in seconds.items():
        print(f"{name}: median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f}, peak {peak[name] / 1e9:.2f} GB")
    medians = [statistics.median(t) for t in seconds.values()]
    print(f"ours / peer: time {medians[0] / medians[1]:.2f}, memory {peak['velatura'] / peak['peer']:.2f}")


if __name__ == "__main__":
    main()
