"""Loads LoRA files that velatura wrote into diffusers and compares pictures made by both from the same noise.

For each file: diffusers must report no unused key; every module of the file must be adapted, and no other; each adapter's
weight change must be the file's. For each sampler: both pictures must agree to 30 dB, and differ from the picture without
the LoRA by far more than from each other.
"""

import argparse
import json
import logging
import math
import pathlib
import shutil
import subprocess
import sys
import warnings

import diffusers
import numpy
import PIL.Image
import safetensors
import safetensors.torch
import torch

PROMPT = "hc style, a cat face"
SEED, STEPS, GUIDANCE, SIDE = 11, 20, 4.0, 64
SAMPLERS = {"ddim": diffusers.DDIMScheduler, "euler": diffusers.EulerDiscreteScheduler}
LEAST_DB = 30.0
COMPLAINTS = ("unexpected", "not found in the model", "unused", "missing", "not used", "no lora", "ignored", "leftover", "could not")


class Failures(list):
    def check(self, good, text):
        print(f"{'ok  ' if good else 'FAIL'} {text}")
        if not good:
            self.append(text)


class Listener(logging.Handler):
    """Collects what the libraries say while a LoRA is loaded."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        self.loggers = [logging.getLogger(name) for name in ("diffusers", "transformers", "peft", "root")]
        for logger in self.loggers:
            logger.addHandler(self)
        self.warnings = warnings.catch_warnings(record=True)
        self.caught = self.warnings.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *error):
        self.lines += [str(w.message) for w in self.caught]
        self.warnings.__exit__(*error)
        for logger in self.loggers:
            logger.removeHandler(self)

    def complaints(self):
        return [line for line in self.lines if any(word in line.lower() for word in COMPLAINTS)]


def psnr(a, b):
    error = numpy.square(a.astype(float) - b.astype(float)).mean()
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def pipeline(model):
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def changes_in_file(path):
    """Module name without dots and prefixes → its weight change, from a kohya or a diffusers file."""
    tensors = safetensors.torch.load_file(path)
    changes, used = {}, set()
    for key, down in tensors.items():
        for mark, other in ((".lora_down.weight", ".lora_up.weight"), (".lora_A.weight", ".lora_B.weight")):
            if key.endswith(mark):
                stem = key.removesuffix(mark)
                rank = down.shape[0]
                alpha = tensors.get(f"{stem}.alpha", torch.tensor(float(rank))).item()
                used |= {key, stem + other, f"{stem}.alpha"}
                change = alpha / rank * tensors[stem + other].float().flatten(1) @ down.float().flatten(1)
                name = stem.replace("lora_unet_", "unet_").replace("lora_te_", "text_encoder_").replace(".", "_")
                changes[name.replace("text_encoder_text_model_", "text_encoder_")] = change
    strange = sorted(set(tensors) - used)
    if strange:
        sys.exit(f"interop: {path} holds tensors in neither layout, the first is {strange[0]}")
    return changes


def changes_in_pipeline(pipe):
    changes = {}
    for component in ("unet", "text_encoder"):
        for name, module in getattr(pipe, component).named_modules():
            if getattr(module, "lora_A", None):
                (adapter,) = module.lora_A.keys()
                up, down = module.lora_B[adapter].weight, module.lora_A[adapter].weight
                name = f"{component}_{name.replace('.', '_')}".replace("text_encoder_text_model_", "text_encoder_")
                changes[name] = (module.scaling[adapter] * up.flatten(1) @ down.flatten(1)).detach()
    return changes


def load(failures, label, model, path):
    pipe = pipeline(model)
    with Listener() as heard:
        pipe.load_lora_weights(str(path.parent), weight_name=path.name)
    complaints = heard.complaints()
    failures.check(not complaints, f"{label}: diffusers has no complaint" + "".join(f"\n     {line}" for line in complaints))
    want, have = changes_in_file(path), changes_in_pipeline(pipe)
    print(f"     {label}: {len(want)} modules in the file, {len(have)} adapters in diffusers")
    failures.check(want and set(want) == set(have), f"{label}: the adapters are the file's modules {sorted(set(want) ^ set(have))[:4]}")
    worst = max((((want[n] - have[n]).norm() / want[n].norm().clamp(min=1e-12)).item() for n in set(want) & set(have)), default=math.inf)
    failures.check(worst < 1e-5, f"{label}: the weight changes are the file's (largest relative difference {worst:.1e})")
    moved = sum(bool(change.abs().max() > 0) for change in want.values())
    failures.check(moved == len(want), f"{label}: {moved} of {len(want)} modules were changed by the training")
    return pipe


def theirs(pipe, sampler, noise):
    pipe.scheduler = SAMPLERS[sampler].from_config(pipe.scheduler.config)
    picture = pipe(PROMPT, negative_prompt="", latents=noise.clone(), num_inference_steps=STEPS, guidance_scale=GUIDANCE,
                   height=SIDE, width=SIDE, output_type="np").images[0]
    return (picture * 255).round().astype(numpy.uint8)


def ours(arguments, label, lora, sampler):
    """(picture, noise) of `velatura sample`."""
    folder = arguments.output / f"{label}-{sampler}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    noise = folder / "noise.safetensors"
    command = [arguments.binary, "sample", "--model", arguments.model, *(["--lora", lora] if lora else []), "--prompt", PROMPT,
               "--seed", SEED, "--steps", STEPS, "--guidance-scale", GUIDANCE, "--sampler", sampler, "--width", SIDE,
               "--height", SIDE, "--output", folder, "--save-noise", noise]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"interop: {' '.join(map(str, command))}\nexited with {done.returncode}: {done.stderr.strip()}")
    pictures = sorted(folder.glob("*.png"))
    if len(pictures) != 1:
        sys.exit(f"interop: velatura sample left {len(pictures)} pictures in {folder}, 1 expected")
    return numpy.asarray(PIL.Image.open(pictures[0]).convert("RGB")), safetensors.torch.load_file(noise)["noise"]


def compare(failures, arguments, label, lora, pipe, sampler, plain):
    picture, noise = ours(arguments, label, lora, sampler)
    failures.check(noise.shape == (1, 4, 16, 16) and 0.8 < noise.std() < 1.2, f"{label} {sampler}: the noise is unit noise of 1×4×16×16")
    reference = theirs(pipe, sampler, noise)
    PIL.Image.fromarray(reference).save(arguments.output / f"{label}-{sampler}" / "diffusers.png")
    agreement = psnr(picture, reference)
    failures.check(agreement >= LEAST_DB, f"{label} {sampler}: both pictures agree to {agreement:.1f} dB (at least {LEAST_DB:.0f})")
    if plain is not None:
        effect = psnr(picture, plain)
        failures.check(effect < min(25.0, agreement - 5), f"{label} {sampler}: the LoRA changes the picture ({effect:.1f} dB from the one without)")
    return picture


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--lora", action="append", metavar="LABEL=FILE", required=True)
    arguments = parser.parse_args()

    files = [item.partition("=")[::2] for item in arguments.lora]
    failures = Failures()
    counts = {label: len(changes_in_file(path)) for label, path in files}
    failures.check(len(set(counts.values())) == 1, f"all files hold the same number of modules {counts}")
    bare = pipeline(arguments.model)
    plain = {name: compare(failures, arguments, "plain", None, bare, name, None) for name in SAMPLERS}
    for label, path in files:
        with safetensors.safe_open(path, "pt") as file:
            print(f"     {label}: metadata {json.dumps(file.metadata() or {}, ensure_ascii=False)[:200]}…")
        pipe = load(failures, label, arguments.model, pathlib.Path(path))
        for name in SAMPLERS:
            compare(failures, arguments, label, path, pipe, name, plain[name])
    if failures:
        sys.exit("interop: FAILED\n" + "\n".join(f"  {text}" for text in failures))
    print("interop: every check passed")


if __name__ == "__main__":
    main()
