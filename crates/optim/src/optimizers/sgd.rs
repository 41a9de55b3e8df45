//! Stochastic gradient descent with momentum (Sutskever et al., "On the importance of initialization and momentum in deep
//! learning", 2013), in PyTorch's form.
//!
//! ```text
//! g ← g + λp        b ← μb + (1−τ)g (at first b = g)        p ← p − lr·(b, or g + μb for Nesterov's)
//! ```

use super::{Entry, Rates, Rule, Step, of};
use crate::cells::{Kind, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, SHARE};
use anyhow::{Result, ensure};

const RATES: Rates = Rates { default: 1e-2, usual: [1e-6, 10.0] };

pub(super) const ENTRY: Entry =
    Entry { name: "sgd", aliases: &[], rates: RATES, version: 1, parse: |hyper| parse(hyper, Start { momentum: 0.0, nesterov: false }) };

/// The name that kohya's scripts give to it with Nesterov's momentum.
pub(super) const NESTEROV: Entry = Entry {
    name: "sgdnesterov",
    // Its one array of state stays in f32.
    aliases: &["sgdnesterov8bit"],
    rates: RATES,
    version: 1,
    parse: |hyper| parse(hyper, Start { momentum: 0.9, nesterov: true }),
};

/// Settings when the config gives none.
struct Start {
    momentum: f64,
    nesterov: bool,
}

struct Sgd {
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
}

fn parse(hyper: &mut Hyper, start: Start) -> Result<Box<dyn Rule>> {
    let momentum = hyper.number(&["momentum"], start.momentum, DECAY)?;
    let dampening = hyper.number(&["dampening"], 0.0, SHARE)?;
    let nesterov = hyper.flag(&["nesterov"], start.nesterov)?;
    let weight_decay = hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?;
    ensure!(!nesterov || (momentum > 0.0 && dampening == 0.0), "optimizer sgd: nesterov needs a momentum and no dampening");
    Ok(Box::new(Sgd { momentum, dampening, nesterov, weight_decay }))
}

impl Rule for Sgd {
    fn cells(&self) -> Vec<Spec> {
        if self.momentum > 0.0 { vec![Spec::new("momentum_buffer", Kind::Elements)] } else { Vec::new() }
    }

    fn step(&mut self, step: Step) {
        let lr = step.lr;
        let decay = |own: Option<f64>| own.unwrap_or(self.weight_decay) as f32;
        if self.momentum == 0.0 {
            return step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, []| {
                let (lr, decay) = ((lr * place.lr_scale) as f32, decay(place.weight_decay));
                params.iter_mut().zip(grads).for_each(|(p, g)| *p -= lr * (g + decay * *p));
            });
        }
        let (momentum, rest) = (self.momentum as f32, (1.0 - self.dampening) as f32);
        let ahead = if self.nesterov { [1.0, momentum] } else { [0.0, 1.0] };
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, [buffer]| {
            let (lr, decay) = ((lr * place.lr_scale) as f32, decay(place.weight_decay));
            let [old, new] = if place.updates == 1 { [0.0, 1.0] } else { [momentum, rest] };
            for ((p, g), b) in params.iter_mut().zip(grads).zip(buffer.floats) {
                let g = g + decay * *p;
                *b = old * *b + new * g;
                *p -= lr * (ahead[0] * g + ahead[1] * *b);
            }
        });
    }
}
