//! `warmup_stable_decay`: the base rate until the last `decay_steps` (below 1: a share of the run), then down to `min_lr` (Hu et al.,
//! "MiniCPM", 2024, section 4; transformers' `get_wsd_schedule`). `decay_type`: `cosine`, `linear`, or `1-sqrt` (Hägele et al.,
//! "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024).

use super::cosine::half_wave;
use super::{Curve, Entry, Point, Request, Warmup, min_share, steps_or_share};
use crate::hyper::NOT_NEGATIVE;
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry = Entry { name: "warmup_stable_decay", aliases: &["wsd"], warmup: Warmup::Steps(0), build };

struct StableDecay {
    decay_steps: u64,
    shape: fn(f64) -> f64,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    let total = request.total;
    let decay_steps = steps_or_share(&mut request, &["decay_steps", "num_decay_steps"], NOT_NEGATIVE, total)?;
    let decay_steps = decay_steps.unwrap_or((0.2 * total as f64).round() as u64);
    let left = total.saturating_sub(request.warmup);
    ensure!(
        decay_steps <= left || total <= request.warmup,
        "learning-rate schedule warmup_stable_decay: decay_steps ({decay_steps}) is more than the {left} steps after the warm-up"
    );
    let shape = match request.hyper.choice(&["decay_type"], &["cosine", "linear", "1-sqrt"])? {
        "cosine" => half_wave,
        "linear" => |progress| 1.0 - progress,
        _ => |progress: f64| 1.0 - progress.sqrt(),
    };
    Ok(Box::new(StableDecay { decay_steps, shape, min }))
}

impl Curve for StableDecay {
    fn at(&self, point: Point) -> f64 {
        let stable = point.length.saturating_sub(self.decay_steps);
        if point.step < stable {
            return 1.0;
        }
        let progress = (point.step - stable) as f64 / (point.length - stable).max(1) as f64;
        self.min + (1.0 - self.min) * if point.step == point.length { 0.0 } else { (self.shape)(progress) }
    }
}
