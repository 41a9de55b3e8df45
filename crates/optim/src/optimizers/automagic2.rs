//! Automagic, second form (ai-toolkit's own): one rate for each parameter tensor, which rises by `lr_bump` while at least
//! `agreement_threshold` of its elements' updates keep their sign, and falls by it otherwise.
//!
//! The update is Automagic's (`automagic.rs`) with that one rate.

use super::automagic::{RATES, Settings, bit, set_bit};
use super::factored::{clip, observe, stretches};
use super::{Entry, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec};
use crate::hyper::{Hyper, SHARE};
use crate::table::{Grain, Place};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "automagic2", aliases: &[], rates: RATES, version: 1, parse };

struct Automagic2 {
    settings: Settings,
    agreement_threshold: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    let settings = Settings::parse(hyper)?;
    Ok(Box::new(Automagic2 { settings, agreement_threshold: hyper.number(&["agreement_threshold"], 0.5, SHARE)? }))
}

impl Automagic2 {
    /// Takes the signs of the updates, and returns how many are as they were. The update's sign is its gradient's.
    fn agreeing(signs: &mut [u8], grads: &[f32]) -> usize {
        let mut count = 0;
        for (i, g) in grads.iter().enumerate() {
            count += usize::from(bit(signs, i) == (*g > 0.0));
            set_bit(signs, i, *g > 0.0);
        }
        count
    }

    /// Updates one parameter; returns its rate.
    fn update(&self, scale: f32, place: Place, params: &mut [f32], grads: &[f32], [rows, columns, rate, signs]: [Lane; 4]) -> f64 {
        let Automagic2 { settings, agreement_threshold } = self;
        observe(place.matrix, settings.mean(), rows.floats, columns.floats, |i| grads[i] * grads[i]);
        let clip = clip(place.matrix, rows.floats, columns.floats, grads, settings.clip_threshold);
        let agreement = Self::agreeing(signs.bytes, grads) as f64 / grads.len() as f64;
        if place.updates > 1 && place.in_a_row {
            let bump = settings.lr_bump as f32;
            rate.floats[0] = settings.clamp(rate.floats[0] + if agreement >= *agreement_threshold { bump } else { -bump });
        }
        let (step, decay) = (scale * rate.floats[0], place.weight_decay.unwrap_or(settings.weight_decay) as f32);
        stretches(place.matrix, rows.floats, columns.floats, |range, factor, below| {
            for ((p, g), c) in params[range.clone()].iter_mut().zip(&grads[range]).zip(below) {
                *p -= step * (decay * *p + g * (factor / c.sqrt()) / clip);
            }
        });
        f64::from(rate.floats[0])
    }
}

impl Rule for Automagic2 {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        vec![
            Spec::new("exp_avg_sq_row", Kind::Rows),
            Spec::new("exp_avg_sq_col", Kind::Columns),
            Spec::new("lr", Kind::Single),
            Spec::new("polarity", Kind::Bits(1)),
        ]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["rate"]
    }

    fn step(&mut self, mut step: Step) {
        let (start, share) = (step.base_lr as f32, step.share());
        let [rates, count] = step.table.sum(step.params, step.grads, of(step.cells), |place, params, grads, lanes| {
            let [rows, columns, rate, signs] = lanes;
            if place.updates == 1 {
                rate.floats[0] = start;
            }
            let scale = (share * place.lr_scale) as f32;
            [self.update(scale, place, params, grads, [rows, columns, rate, signs]), 1.0]
        });
        step.scalars.set("rate", rates / count.max(1.0));
    }
}
