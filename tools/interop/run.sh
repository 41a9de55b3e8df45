#!/bin/sh
# Proves that a LoRA trained by velatura is the same LoRA in diffusers: trains one on the tiny emoji model, loads it with
# load_lora_weights, and compares the pictures. Exit status 0 only if every check passed.
#
#   VELATURA_BIN            the binary (default: target/release/velatura)
#   VELATURA_INTEROP_VENV   where the Python environment is kept (default: target/interop-venv)
#   VELATURA_INTEROP_OUT    where the run and the pictures go, emptied first (default: target/interop)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tools/interop
binary=${VELATURA_BIN:-$root/target/release/velatura}
venv=${VELATURA_INTEROP_VENV:-$root/target/interop-venv}
out=${VELATURA_INTEROP_OUT:-$root/target/interop}
model=$root/assets/tiny-emoji
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1

if [ ! -x "$binary" ]; then
    echo "interop: there is no velatura binary at $binary: run cargo build --release, or set VELATURA_BIN" >&2
    exit 2
fi
if ! "$venv/bin/python" "$here/environment.py" "$here/requirements.txt" 2>/dev/null; then
    echo "interop: installing PyTorch and diffusers into $venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
    "$venv/bin/python" "$here/environment.py" "$here/requirements.txt"
fi

rm -rf "$out"
mkdir -p "$out"
cat > "$out/config.yaml" <<YAML
name: interop
output: $out/run
seed: 7
model:
  name_or_path: $model
network:
  linear: 8
  linear_alpha: 4      # not the rank, so that a lost alpha shows
  conv: 4
  conv_alpha: 4
datasets:
  - folder_path: $root/assets/dataset
    resolution: 64
train:
  steps: 60
  batch_size: 2
  lr: 2e-3
  train_text_encoder: true
  text_encoder_lr: 1e-3
  dtype: fp32
save:
  dtype: fp32
  layout: kohya
sample:
  sample_every: 0
YAML
echo "interop: training"
"$binary" train "$out/config.yaml"
"$binary" convert --to diffusers "$out/run/interop/interop.safetensors" "$out/diffusers.safetensors"

"$venv/bin/python" "$here/compare.py" --binary "$binary" --model "$model" --output "$out" \
    --lora kohya="$out/run/interop/interop.safetensors" --lora diffusers="$out/diffusers.safetensors"
