//! Schedule-free AdamW (Defazio et al., "The Road Less Scheduled", 2024, algorithm 1), with the settings of its authors' package
//! `schedulefree`.
//!
//! Trained are the y; what is saved and sampled is their average x. With t steps before this one:
//!
//! ```text
//! v ← β₂v + (1−β₂)g²        u = g/(√(v/(1−β₂ᵗ⁺¹)) + ε) + λy        w = (t+1)ʳ · (largest rate so far)^weight_lr_power
//! c = w / Σw                y ← y + c(z − y) + lr·(β₁(1−c) − 1)·u          z ← z − lr·u
//! x = y + (1 − 1/β₁)(z − y)
//! ```
//! It needs no falling schedule; a warm-up (`warmup_steps` here, or the run's own) helps.

use super::{Entry, Rates, Rule, Step, of};
use crate::cells::{Cells, Kind, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, NOT_NEGATIVE, POSITIVE};
use crate::table::Table;
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry = Entry {
    name: "adamw_schedulefree",
    aliases: &["schedulefree", "schedulefreeadamw", "adamschedulefree"],
    rates: Rates { default: 2.5e-3, usual: [1e-7, 1e-1] },
    version: 1,
    parse,
};

struct ScheduleFree {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    warmup_steps: u64,
    r: f64,
    weight_lr_power: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    let betas = hyper.numbers(&["betas"], [0.9, 0.999], DECAY)?;
    ensure!(betas[0] > 0.0, "optimizer adamw_schedulefree: the first of betas must be more than 0: it places what is trained");
    Ok(Box::new(ScheduleFree {
        betas,
        eps: hyper.number(&["eps"], 1e-8, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        warmup_steps: hyper.whole(&["warmup_steps"], 0, [0, 1_000_000_000])?,
        r: hyper.number(&["r"], 0.0, NOT_NEGATIVE)?,
        weight_lr_power: hyper.number(&["weight_lr_power"], 2.0, NOT_NEGATIVE)?,
    }))
}

impl Rule for ScheduleFree {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("z", Kind::Elements), Spec::new("exp_avg_sq", Kind::Elements)]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("weight_sum", 0.0), ("lr_max", 0.0)]
    }

    fn step(&mut self, mut step: Step) {
        let count = step.number as f64;
        let lr = step.lr * if step.number <= self.warmup_steps { count / self.warmup_steps as f64 } else { 1.0 };
        let lr_max = step.scalars.get("lr_max").max(lr);
        let weight = count.powf(self.r) * lr_max.powf(self.weight_lr_power);
        let weight_sum = step.scalars.get("weight_sum") + weight;
        let share = if weight_sum > 0.0 { weight / weight_sum } else { 0.0 };
        step.scalars.set("lr_max", lr_max);
        step.scalars.set("weight_sum", weight_sum);
        let [beta1, beta2] = self.betas;
        let bias = (1.0 - beta2.powf(count)) as f32;
        let (beta2, rest2, eps, c) = (beta2 as f32, (1.0 - beta2) as f32, self.eps as f32, share as f32);
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, [z, v]| {
            if place.updates == 1 {
                z.floats.copy_from_slice(params);
            }
            let lr = lr * place.lr_scale;
            let decay = place.weight_decay.unwrap_or(self.weight_decay) as f32;
            let into_y = (lr * (beta1 * (1.0 - share) - 1.0)) as f32;
            for (((y, g), z), v) in params.iter_mut().zip(grads).zip(z.floats).zip(v.floats) {
                *v = *v * beta2 + rest2 * g * g;
                let u = g / ((*v / bias).sqrt() + eps) + decay * *y;
                *y += c * (*z - *y) + into_y * u;
                *z -= lr as f32 * u;
            }
        });
    }

    fn averages(&self) -> bool {
        true
    }

    fn publish(&self, table: &Table, cells: &[Cells], params: &mut [f32]) {
        let z = cells[0].floats();
        let beyond = (1.0 - 1.0 / self.betas[0]) as f32;
        // A parameter that was never trained has no z yet.
        for (param, _) in table.layout.params().iter().zip(&table.updates).filter(|(_, updates)| **updates > 0) {
            params[param.range()].iter_mut().zip(&z[param.range()]).for_each(|(y, z)| *y += beyond * (z - *y));
        }
    }
}
