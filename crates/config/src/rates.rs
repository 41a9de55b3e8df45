//! The optimizer of a run, and the learning rates that it is given.

use crate::findings::Findings;
use crate::optimizer;
use crate::scalar::Number;
use crate::train::RawTrain;
use anyhow::{Result, ensure};
use serde_json::{Map, Value};

/// The optimizer and the rates that it is given.
pub(crate) struct Updates {
    pub chosen: Optimizer,
    pub lr: f64,
    pub unet_lr: f64,
    pub text_encoder_lr: f64,
}

/// The optimizer's own name and settings.
pub(crate) struct Optimizer {
    pub name: String,
    pub params: Map<String, Value>,
    pub averages: bool,
}

pub(crate) fn resolve(raw: &mut RawTrain, trained: [bool; 2], findings: &mut Findings) -> Updates {
    let chosen = optimizer::read(raw.optimizer.as_deref(), raw.optimizer_params.take(), findings);
    let Some(chosen) = findings.or(chosen.map(Some), None) else {
        let none = Optimizer { name: String::new(), params: Map::new(), averages: false };
        return Updates { chosen: none, lr: 1e-4, unet_lr: 1e-4, text_encoder_lr: 1e-4 };
    };
    let parts = [("train.lr", raw.lr), ("train.unet_lr", raw.unet_lr), ("train.text_encoder_lr", raw.text_encoder_lr)];
    let groups = raw.param_groups.iter().flatten().enumerate().map(|(i, group)| (format!("train.param_groups[{i}].lr"), group.lr));
    let rates: Vec<_> = parts.into_iter().map(|(key, lr)| (key.to_string(), lr)).chain(groups).collect();
    optimizer::check_relative(&chosen, &rates, findings);
    let usual = optimizer::rate(&chosen, raw.lr, findings);
    let lr = findings.or(rate("train.lr", raw.lr, usual), chosen.rates.default);
    let unet_lr = findings.or(rate("train.unet_lr", raw.unet_lr, lr), lr);
    let text_encoder_lr = findings.or(rate("train.text_encoder_lr", raw.text_encoder_lr, lr), lr);
    let rates = [(unet_lr, "train_unet", "unet_lr"), (text_encoder_lr, "train_text_encoder", "text_encoder_lr")];
    for (_, (_, part, key)) in trained.into_iter().zip(rates).filter(|(on, (rate, ..))| *on && *rate <= 0.0) {
        findings.wrong(format!("train.{part}: true needs a rate, but train.{key} (or train.lr) is 0"));
    }
    let averages = chosen.averages();
    Updates { chosen: Optimizer { name: chosen.name.to_string(), params: chosen.params, averages }, lr, unet_lr, text_encoder_lr }
}

pub(crate) fn rate(key: &str, value: Option<Number>, default: f64) -> Result<f64> {
    let rate = value.unwrap_or(Number(default));
    ensure!(rate.0 >= 0.0, "{key}: {rate} is negative");
    ensure!(rate.0 <= 10.0, "{key}: {rate} is far beyond any useful learning rate (1e-4 is a usual one)");
    Ok(rate.0)
}
