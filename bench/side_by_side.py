"""One LoRA training step of a full-size UNet: velatura and diffusers + peft, in turn, in one command.

Needs the environment that peer_step.py names, and a release build. Writes its files below --work.
    python bench/side_by_side.py --work /tmp/bench [--model sd15|sdxl-blocks] [--rounds 3] [--steps 4] [--checkpointing]
                                 [--peer "--dtype fp32"] [--peer "--compile"] ...
Each --peer adds a run of the peer with those settings to every round; without any the peer runs with its defaults.
Prints a line for each run, then medians with their spread, and the ratios ours / peer. The first step of each run warms caches and does not count.
"""
import argparse, json, os, statistics, subprocess, sys
import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"sd15": ("sd15.safetensors", 512), "sdxl-blocks": ("sdxl-blocks", 1024)}
CONFIG = """
name: bench
training_folder: {work}/output
model: {{name_or_path: {model}}}
network: {{linear: 16, only_if_contains: [to_q, to_k, to_v, to_out]}}
datasets: [{{folder_path: {work}/pictures-{side}, resolution: {side}}}]
train: {{steps: {steps}, batch_size: 1, gradient_checkpointing: {checkpointing}}}
save: {{save_every: 0}}
sample: {{sample_every: 0}}
"""


def prepare(a):
    file, side = MODELS[a.model]
    model, pictures = f"{a.work}/{file}", f"{a.work}/pictures-{side}"
    os.makedirs(pictures, exist_ok=True)
    if not os.path.exists(model):
        subprocess.run([sys.executable, f"{HERE}/random_checkpoint.py", a.model, model], check=True)
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"{pictures}/{i}.png")
        with open(f"{pictures}/{i}.txt", "w") as f:
            f.write(f"picture number {i}")
    with open(f"{a.work}/config.yaml", "w") as f:
        f.write(CONFIG.format(work=a.work, model=model, side=side, steps=a.steps, checkpointing=str(a.checkpointing).lower()))


def ours(a):
    subprocess.run([a.binary, "train", f"{a.work}/config.yaml", "--over"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(f"{a.work}/output/bench/metrics.jsonl") as f:
        rows = [json.loads(line) for line in f]
    return [sum(r["seconds"].values()) for r in rows[1:]], rows[-1]["peak_bytes"]


def peer(a, settings):
    command = [sys.executable, f"{HERE}/peer_step.py", "--model", a.model, "--res", str(MODELS[a.model][1]), "--steps", str(a.steps)]
    done = subprocess.run(command + ["--checkpointing"] * a.checkpointing + settings.split(), check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [r["total_s"] for r in rows[1:]], rows[-1]["peak_rss_bytes"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", required=True)
    p.add_argument("--model", choices=list(MODELS), default="sd15")
    p.add_argument("--binary", default=os.path.join(HERE, "..", "target", "release", "velatura"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--checkpointing", action="store_true")
    p.add_argument("--peer", action="append", help="settings of peer_step.py; may be given several times")
    a = p.parse_args()
    prepare(a)
    runs = {"velatura": lambda: ours(a)}
    for settings in a.peer or [""]:
        runs[f"peer {settings}".strip()] = lambda settings=settings: peer(a, settings)
    seconds, peak = {name: [] for name in runs}, {}
    for _ in range(a.rounds):
        for name, run in runs.items():
            times, peak[name] = run()
            seconds[name] += times
            print(name, [round(t, 2) for t in times], f"{peak[name] / 1e9:.2f} GB", flush=True)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        print(f"{name}: median {medians[name]:.2f} s, {min(times):.2f} to {max(times):.2f}, peak {peak[name] / 1e9:.2f} GB")
    for name in list(runs)[1:]:
        print(f"velatura / {name}: time {medians['velatura'] / medians[name]:.2f}, memory {peak['velatura'] / peak[name]:.2f}")


if __name__ == "__main__":
    main()
