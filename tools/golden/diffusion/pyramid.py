"""Pyramid noise put together from given levels: bilinear enlargement as a product of matrices, and the spread of the sum.

Writes crates/diffusion/tests/pyramid.json. Arrays are [height, width, channels]. Where PyTorch is installed its interpolate is asked
to agree.
"""

import json
import pathlib

import numpy as np

SEED = 5
TARGET = pathlib.Path(__file__).parents[3] / "crates/diffusion/tests/pyramid.json"


def matrix(to, size):
    """[to, size]: row i holds the weights of the two pixels around the centre of pixel i."""
    out = np.zeros((to, size))
    for i in range(to):
        place = max((i + 0.5) * size / to - 0.5, 0)
        first = min(int(place), size - 1)
        out[i, first] += 1 - (place - first)
        out[i, min(first + 1, size - 1)] += place - first
    return out


def enlarge(level, size):
    rows, columns = matrix(size[0], level.shape[0]), matrix(size[1], level.shape[1])
    return np.einsum("yh,xw,hwc->yxc", rows, columns, level)


def check_with_torch(level, size):
    try:
        import torch
    except ImportError:
        return
    theirs = torch.nn.functional.interpolate(torch.tensor(level).permute(2, 0, 1)[None], size=size, mode="bilinear")
    assert np.abs(theirs[0].permute(1, 2, 0).numpy() - enlarge(level, size)).max() < 1e-12


def main():
    random = np.random.default_rng(SEED)
    cases = []
    for size, channels, sizes, discount in [((8, 6), 3, [(8, 6), (3, 2), (1, 1)], 0.4), ((7, 9), 4, [(7, 9), (2, 4), (1, 2)], 0.3),
                                            ((5, 5), 2, [(5, 5), (4, 1)], 0.9)]:
        noise = random.standard_normal((*size, channels))
        levels = [random.standard_normal((*level, channels)) for level in sizes]
        total = noise.copy()
        for i, level in enumerate(levels):
            check_with_torch(level, size)
            total += discount ** i * enlarge(level, size)
        cases.append({"size": size, "discount": discount, "noise": noise.ravel().tolist(),
                      "levels": [{"size": level.shape[:2], "values": level.ravel().tolist()} for level in levels],
                      "out": (total / total.std(ddof=1)).ravel().tolist()})
    fixture = {"script": "tools/golden/diffusion/pyramid.py", "seed": SEED, "numpy": np.__version__, "cases": cases}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
