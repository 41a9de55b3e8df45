"""bitsandbytes' dynamic 8-bit code: its numbers, and the nearest of them to each element of one block.

The codes are found by looking at all 256: bitsandbytes' own quantiser for CPUs uses a table that is too coarse near 0.

Writes crates/optim/tests/dynamic_code.json.
"""

import json
import pathlib

import bitsandbytes
import torch
from bitsandbytes.functional import create_dynamic_map

SEED = 21
TARGET = pathlib.Path(__file__).parents[3] / "crates/optim/tests/dynamic_code.json"


def main():
    generator = torch.Generator().manual_seed(SEED)
    fixture = {"script": "tools/golden/optim/dynamic_code.py", "seed": SEED, "bitsandbytes": bitsandbytes.__version__}
    for name, signed in (("signed", True), ("unsigned", False)):
        book = create_dynamic_map(signed=signed)
        # Magnitudes above the smallest code, so that velatura's rule for tiny second moments plays no part.
        block = torch.randn(256, generator=generator) * 10 ** (-5 * torch.rand(256, generator=generator))
        block = block if signed else block.abs().clamp(min=1e-5)
        codes = ((block / block.abs().max())[:, None].double() - book[None].double()).abs().argmin(dim=1)
        fixture |= {name: book.tolist(), f"{name}_block": block.tolist(), f"{name}_codes": codes.tolist()}
    TARGET.write_text(json.dumps(fixture, separators=(",", ":")))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
