"""Loss curves of optimizers side by side, on the tiny model that the program brings along.

    python bench/optimizer_losses.py target/release/velatura [--steps 500] [--batch 4] [adamw adamw8bit ...]

Trains the same run (same seed: same noise, timesteps, pictures) with each optimizer, and the first one with two more seeds, whose
spread is the noise of such a curve. Prints the mean loss of the last fifth, how far each curve is from the first optimizer's, step by
step, and the bytes of optimizer state for each parameter.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

ASSETS = pathlib.Path(__file__).resolve().parents[1] / "assets"
RATES = {"lion": 3e-4, "lion8bit": 3e-4, "prodigy": 1.0, "prodigy8bit": 1.0}


def config(optimizer, seed, steps, batch, folder):
    return {"name": "run", "training_folder": f"{folder}/{optimizer}-{seed}", "cache_dir": f"{folder}/cache", "seed": seed,
            "model": {"name_or_path": str(ASSETS / "tiny-emoji.safetensors")}, "network": {"linear": 16, "linear_alpha": 16},
            "datasets": [{"folder_path": str(ASSETS / "dataset"), "resolution": 64}],
            "train": {"steps": steps, "batch_size": batch, "lr": RATES.get(optimizer, 1e-3), "dtype": "fp32", "optimizer": optimizer},
            "save": {"save_every": steps}}


def train(binary, optimizer, seed, steps, batch, folder):
    path = pathlib.Path(folder) / f"{optimizer}-{seed}.yaml"
    path.write_text(json.dumps(config(optimizer, seed, steps, batch, folder)))
    plan = json.loads(subprocess.run([binary, "plan", path, "--json"], check=True, capture_output=True).stdout)
    subprocess.run([binary, "train", path], check=True, capture_output=True)
    rows = (pathlib.Path(folder) / f"{optimizer}-{seed}/run/metrics.jsonl").read_text().splitlines()
    return [json.loads(row)["loss"] for row in rows], plan["memory"]["optimizer_state"] / plan["trained_parameters"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("optimizers", nargs="*", default=["adamw", "adamw8bit", "lion", "lion8bit", "prodigy", "prodigy8bit"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=4)
    arguments = parser.parse_args()
    tail = slice(-(arguments.steps // 5), None)
    mean = lambda values: sum(values) / len(values)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'optimizer':<22}{'seed':>5}{'mean loss of the last fifth':>29}{'mean |difference| to its 32-bit form':>38}{'bytes':>8}")
        full = {}
        for optimizer in arguments.optimizers:
            for seed in [42, 43, 44] if optimizer == arguments.optimizers[0] else [42]:
                losses, size = train(arguments.binary, optimizer, seed, arguments.steps, arguments.batch, folder)
                full.setdefault(optimizer, losses)
                base = full.get(optimizer.removesuffix("8bit"), losses)
                away = mean([abs(a - b) for a, b in zip(losses, base)])
                print(f"{optimizer:<22}{seed:>5}{mean(losses[tail]):>29.5f}{away:>38.5f}{size:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
