//! Automagic, third form (ai-toolkit's own): one rate for each parameter group, moved by the votes of all its elements.
//!
//! Every element remembers the signs of its last H updates (`polarity_history`), one bit each. It votes +|u| if all H agree (the step
//! is too small), −|u| if every one differs from the one before (too large), and 0 otherwise; by chance both are equally rare.
//!
//! ```text
//! v from g² with β₂, + ε, factored (`factored.rs`)        u = g/√v / max(1, RMS(u)/clip_threshold), each within ±clip_threshold
//! p ← p − a·(λp + u)                                      a ← a · exp(Σ votes / Σ|u|), within 10⁻³⁰…10³
//! ```
//! The sums run over the parameters of a group whose windows are full. The schedule's share and the groups' factors scale the step.

use super::automagic::{RATES, bit, set_bit};
use super::factored::{Mean, clip, observe, stretches};
use super::{Entry, Rule, Step, of};
use crate::cells::{Cells, Kind, Lane, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::{Grain, Place, Table};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "automagic3", aliases: &[], rates: RATES, version: 1, parse };

struct Automagic3 {
    beta2: f64,
    eps: f64,
    clip_threshold: f64,
    weight_decay: f64,
    /// H.
    history: usize,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Automagic3 {
        beta2: hyper.number(&["beta2"], 0.999, DECAY)?,
        eps: hyper.number(&["eps"], 1e-30, POSITIVE)?,
        clip_threshold: hyper.number(&["clip_threshold"], 1.0, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        history: hyper.whole(&["polarity_history"], 8, [2, 64])? as usize,
    }))
}

/// What an element's window of signs says: 1, −1 or 0. `oldest` is the plane that the window begins with.
fn vote(planes: &[u8], history: usize, oldest: usize, i: usize) -> f64 {
    let width = planes.len() / history;
    let sign = |k: usize| bit(&planes[(oldest + k) % history * width..], i);
    let flips = (1..history).filter(|k| sign(*k) != sign(k - 1)).count();
    f64::from(i8::from(flips == 0) - i8::from(flips == history - 1))
}

impl Automagic3 {
    /// Updates one parameter at the rate `a`; returns the sums of its votes and of |u|, once its window is full.
    fn update(&self, a: f32, place: Place, params: &mut [f32], grads: &[f32], [rows, columns, planes]: [Lane; 3]) -> [f64; 2] {
        observe(place.matrix, Mean { decay: self.beta2, eps: self.eps }, rows.floats, columns.floats, |i| grads[i] * grads[i]);
        let clip = clip(place.matrix, rows.floats, columns.floats, grads, self.clip_threshold);
        let (most, decay) = (self.clip_threshold as f32, place.weight_decay.unwrap_or(self.weight_decay) as f32);
        let (newest, width) = ((place.updates - 1) as usize % self.history, planes.bytes.len() / self.history);
        let full = place.updates >= self.history as u64;
        let mut sums = [0.0; 2];
        stretches(place.matrix, rows.floats, columns.floats, |range, factor, below| {
            for (i, c) in range.zip(below) {
                let update = (grads[i] * (factor / c.sqrt()) / clip).clamp(-most, most);
                set_bit(&mut planes.bytes[newest * width..], i, update > 0.0);
                let weight = f64::from(update.abs());
                if full {
                    let vote = vote(planes.bytes, self.history, (newest + 1) % self.history, i);
                    sums = [sums[0] + vote * weight, sums[1] + weight];
                }
                params[i] -= a * (decay * params[i] + update);
            }
        });
        sums
    }

    /// Moves the rate of each group by its votes; returns the mean rate of the parameters.
    fn count(table: &Table, rates: &mut Cells) -> f64 {
        let group_of = |piece: usize| table.layout.params()[table.pieces()[piece].param].group;
        for group in 0..table.layout.groups().len() {
            let own = (0..table.pieces().len()).filter(|piece| group_of(*piece) == group);
            let [votes, weight] = own.clone().fold([0.0; 2], |[a, b], piece| [a + table.sums()[piece][0], b + table.sums()[piece][1]]);
            let factor = (votes / weight.max(1e-30)).clamp(-1.0, 1.0).exp() as f32;
            own.for_each(|piece| rates.floats_mut()[piece] = (rates.floats()[piece] * factor).clamp(1e-30, 1e3));
        }
        rates.floats().iter().map(|a| f64::from(*a)).sum::<f64>() / rates.floats().len().max(1) as f64
    }
}

impl Rule for Automagic3 {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        vec![
            Spec::new("lr", Kind::Single),
            Spec::new("exp_avg_sq_row", Kind::Rows),
            Spec::new("exp_avg_sq_col", Kind::Columns),
            Spec::new("sign_history", Kind::Bits(self.history)),
        ]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["rate"]
    }

    fn step(&mut self, mut step: Step) {
        let share = step.share();
        let cells = of::<4>(step.cells);
        if step.number == 1 {
            // All parameters of a group have its rate, whether this step trains them or not.
            cells[0].floats_mut().fill(step.base_lr as f32);
        }
        step.table.sum(step.params, step.grads, cells, |place, params, grads, [rate, rows, columns, planes]| {
            let a = (f64::from(rate.floats[0]) * share * place.lr_scale) as f32;
            self.update(a, place, params, grads, [rows, columns, planes])
        });
        step.scalars.set("rate", Self::count(step.table, &mut cells[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_without_exception_vote() {
        let window = |signs: [u8; 4], oldest: usize| {
            let mut planes = [0u8; 4];
            signs.iter().enumerate().for_each(|(k, sign)| planes[(oldest + k) % 4] = sign << 3);
            vote(&planes, 4, oldest, 3)
        };
        for oldest in 0..4 {
            for (signs, expected) in
                [([1, 1, 1, 1], 1.0), ([0, 0, 0, 0], 1.0), ([0, 1, 0, 1], -1.0), ([1, 0, 1, 0], -1.0), ([1, 1, 0, 1], 0.0)]
            {
                assert_eq!(window(signs, oldest), expected, "{signs:?} from {oldest}");
            }
        }
    }
}
