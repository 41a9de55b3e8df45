#!/bin/sh
# Makes all golden files anew. PYTHON names an interpreter that has the libraries of README.md.
set -eu
cd "$(dirname "$0")"
export PYTHONDONTWRITEBYTECODE=1
for script in optim/optimizers optim/dynamic_code optim/schedules diffusion/weights diffusion/pyramid diffusion/schedules diffusion/samplers models clip vae unet lora_training; do
    "${PYTHON:-python3}" "$script.py"
done
