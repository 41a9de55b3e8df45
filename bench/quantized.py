"""What int8 and nf4 base weights cost and save against bf16: step time, loss of the first steps, bytes. Needs a release build, nothing else.

    python bench/quantized.py --work /tmp/quantized                                      # the tiny model of the demo
    python bench/quantized.py --work /tmp/quantized --model sd15.safetensors --size 512  # a full-size one, such as bench/random_checkpoint.py makes
Step times are medians over alternating runs of `velatura bench` (--rounds, each of --steps steps); losses come from one training run each (--losses steps,
0 for none); bytes from `velatura plan`. Prints a line for each run, then a table in Markdown.
"""
import argparse, json, os, statistics, subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ASSETS = os.path.join(HERE, "..", "assets")
KINDS = {"bf16": {"dtype": "bf16"}, "int8": {"quantize": True, "qtype": "qint8"}, "nf4": {"quantize": True, "qtype": "nf4"}}


def config(a, kind):
    path = f"{a.work}/{kind}.yaml"
    settings = {
        "name": kind, "training_folder": f"{a.work}/output", "cache_dir": f"{a.work}/cache", "trigger_word": "hc style", "seed": 3,
        "model": {"name_or_path": os.path.abspath(a.model), **KINDS[kind]},
        "network": {"linear": 16, "linear_alpha": 16, "only_if_contains": ["to_q", "to_k", "to_v", "to_out"]},
        "datasets": [{"folder_path": os.path.abspath(a.pictures), "resolution": a.size}],
        "train": {"steps": max(a.losses, 1), "batch_size": a.batch, "lr": 1e-3, "dtype": "bf16"},
        "save": {"save_every": 0}, "sample": {"sample_every": 0},
    }
    with open(path, "w") as f:
        json.dump(settings, f, indent=1)           # JSON is YAML
    return path


def velatura(a, *arguments):
    done = subprocess.run([a.binary, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"velatura {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def losses(a, kind, path):
    velatura(a, "train", path, "--over")
    with open(f"{a.work}/output/{kind}/metrics.jsonl") as f:
        return [json.loads(line)["loss"] for line in f]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work", required=True)
    p.add_argument("--binary", default=os.path.join(HERE, "..", "target", "release", "velatura"))
    p.add_argument("--model", default=os.path.join(ASSETS, "tiny-emoji"))
    p.add_argument("--pictures", default=os.path.join(ASSETS, "dataset"))
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--losses", type=int, default=20)
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    paths = {kind: config(a, kind) for kind in KINDS}
    plans = {kind: json.loads(velatura(a, "plan", path, "--json"))["memory"] for kind, path in paths.items()}
    curves = {kind: losses(a, kind, path) for kind, path in paths.items()} if a.losses else {}
    seconds = {kind: [] for kind in KINDS}
    for _ in range(a.rounds):
        for kind, path in paths.items():
            result = json.loads(velatura(a, "bench", path, "--steps", str(a.steps), "--json"))
            times = [step["total"] for step in result["steps"]]
            seconds[kind] += times
            print(kind, [round(t, 3) for t in times], f"{100 * (result['processor_share'] or 0):.0f} % of the processor", flush=True)
    whole, base = plans["bf16"]["base_weights_by_type"], statistics.median(seconds["bf16"])
    print("\n| | weights | quantized part / bf16 | step, median (spread) | / bf16 | mean loss / bf16 | worst step / bf16 |\n|---|---|---|---|---|---|---|")
    for kind in KINDS:
        types, times = plans[kind]["base_weights_by_type"], seconds[kind]
        # What is not quantized is kept in the file's type there, and in bf16 here: so the part is counted in numbers.
        rest = sum(size for name, size in types.items() if name in ("f16", "bf16"))
        share = f"{types[kind] / (whole['bf16'] - rest):.3f}" if kind in types and kind != "bf16" else "1"
        line = f"| {kind} | {plans[kind]['base_weights'] / 1e6:.1f} MB | {share} | {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}) "
        line += f"| {statistics.median(times) / base:.2f} "
        if curves:
            pairs = list(zip(curves[kind], curves["bf16"]))
            line += f"| {sum(k for k, _ in pairs) / sum(b for _, b in pairs):.4f} | {max((k / b for k, b in pairs), key=lambda r: abs(r - 1)):.4f} |"
        print(line)


if __name__ == "__main__":
    main()
