"""Loss weights, pseudo-Huber thresholds and distributions of timesteps, from their formulas in float64.

Writes crates/diffusion/tests/weights.json. Nothing of velatura is used: the noise levels are computed here.
"""

import json
import pathlib

import numpy as np

TARGET = pathlib.Path(__file__).parents[3] / "crates/diffusion/tests/weights.json"
TIMESTEPS = [0, 1, 10, 100, 250, 499, 500, 501, 750, 990, 998, 999]
GAMMAS = [1.0, 5.0, 20.0]
DECILES = np.arange(1, 10) / 10


def alphas(zero_terminal):
    """ᾱ of Stable Diffusion; Lin et al. 2023, algorithm 1 for a terminal SNR of zero."""
    betas = np.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2
    bars = np.cumprod(1 - betas)
    if not zero_terminal:
        return bars
    roots = np.sqrt(bars)
    roots = (roots - roots[-1]) * roots[0] / (roots[0] - roots[-1])
    return roots ** 2


def weights(prediction, bars):
    with np.errstate(divide="ignore"):
        snr = bars / (1 - bars)
        velocity = prediction == "v_prediction"
        divisor = snr + 1 if velocity else snr
        out = {"debiased": 1 / (np.minimum(snr, 1000) + 1) if velocity else 1 / np.sqrt(np.minimum(snr, 1000))}
        for gamma in GAMMAS:
            hard, soft = np.minimum(snr, gamma), snr * gamma / (snr + gamma)
            for name, share in [("min_snr", hard), ("soft_min_snr", soft)]:
                # In ε the quotient is 0/0 at SNR 0, and its limit 1.
                out[f"{name} {gamma}"] = np.where(divisor > 0, share / np.where(divisor > 0, divisor, 1), 1.0)
    if velocity:
        limited = np.minimum(snr, 1000)
        out["like_noise"] = limited / (limited + 1)
    return {name: values[TIMESTEPS].tolist() for name, values in out.items()}


def offsets():
    """Strengths of the noise offset by channel: max(0, offset + scale · |mean of the channel|). Latents are [pixels, channels]."""
    rng = np.random.default_rng(5)
    out = []
    for offset, scale in [(0.05, 0.0), (0.05, 0.01), (0.1, -0.05), (0.0, 0.3)]:
        latent = rng.normal(rng.normal(0, 2, 4), 1, (35, 4)).astype(np.float32)
        strengths = np.maximum(0, offset + scale * np.abs(latent.astype(np.float64).mean(axis=0)))
        out.append({"offset": offset, "scale": scale, "latent": latent.ravel().tolist(), "strengths": strengths.tolist()})
    return out


def thresholds(bars, c, scale):
    with np.errstate(divide="ignore"):
        sigma = np.sqrt((1 - bars) / bars)
    t = np.arange(1000)
    out = {"constant": np.full(1000, c * scale), "exponential": np.exp(np.log(c) / 1000 * t) * scale,
           "snr": (1 - c) / (1 + sigma) ** 2 + c}
    return {name: values[TIMESTEPS].tolist() for name, values in out.items()}


def bells():
    """x counts from the noisiest timestep."""
    x = np.arange(1000)
    y = np.exp(-2 * ((x - 500) / 1000) ** 2)
    y -= y.min()
    bell = y * 1000 / y.sum()
    half = bell.copy()
    half[500:] = half.max()
    by_timestep = lambda w: w[::-1][TIMESTEPS].tolist()
    return {"whole": by_timestep(bell), "noisy_side": by_timestep(half)}


def normal_quantile(p):
    """By bisection of a numerically integrated density."""
    grid = np.linspace(-8, 8, 1_600_001)
    density = np.exp(-grid ** 2 / 2) / np.sqrt(2 * np.pi)
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * (grid[1] - grid[0]))])
    return np.interp(p, cdf, grid)


def quantiles():
    """Where the deciles of each distribution lie in the unit range."""
    logit = lambda mean, std: 1 / (1 + np.exp(-(mean + std * normal_quantile(DECILES))))
    out = {"uniform": DECILES, "content": 1 - (1 - DECILES) ** 3, "style": DECILES ** 3,
           "logit_normal 0 1": logit(0, 1), "logit_normal 0.5 2": logit(0.5, 2)}
    return {name: values.tolist() for name, values in out.items()}


def main():
    cases = []
    for prediction, zero in [("epsilon", False), ("v_prediction", False), ("v_prediction", True)]:
        bars = alphas(zero)
        config = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "prediction_type": prediction,
                  "rescale_betas_zero_snr": zero}
        cases.append({"config": config, "weights": weights(prediction, bars),
                      "thresholds": {f"{c} {scale}": thresholds(bars, c, scale) for c, scale in [(0.1, 1.0), (0.01, 2.0)]}})
    fixture = {"script": "tools/golden/diffusion/weights.py", "numpy": np.__version__, "timesteps": TIMESTEPS, "cases": cases,
               "bells": bells(), "quantiles": quantiles(), "offsets": offsets()}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
