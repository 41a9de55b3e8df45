//! `train.optimizer` and `train.optimizer_params`.

use crate::scalar::Number;
use crate::section::section;
use crate::train::not_negative;
use anyhow::{Result, bail, ensure};
use serde::Serialize;

section! {
    RawOptimizerParams {
        betas: Vec<Number>,
        eps: Number,
        weight_decay: Number,
    }
    no effect {}
    not yet { amsgrad: false, }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    AdamW,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimizerParams {
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
}

/// Optimizers of the peers that may come; naming one gets "not yet" instead of "unknown".
const LATER: [&str; 17] = [
    "adam",
    "adam8bit",
    "adamw8bit",
    "adamw8",
    "adam8",
    "ademamix8bit",
    "lion",
    "lion8bit",
    "prodigy",
    "prodigy8bit",
    "dadaptation",
    "adagrad",
    "adafactor",
    "automagic",
    "automagic2",
    "automagic3",
    "sgd",
];

pub(crate) fn read(name: Option<&str>) -> Result<Optimizer> {
    let name = name.unwrap_or("adamw").trim().to_ascii_lowercase();
    if name == "adamw" {
        return Ok(Optimizer::AdamW);
    }
    if LATER.contains(&name.as_str()) {
        bail!("train.optimizer: {name} is not supported yet; adamw is");
    }
    match base::nearest::nearest(&name, LATER.into_iter().chain(["adamw"])) {
        Some("adamw") => bail!("train.optimizer: {name} is unknown; did you mean adamw?"),
        _ => bail!("train.optimizer: {name} is unknown; adamw is supported"),
    }
}

pub(crate) fn resolve(raw: RawOptimizerParams, notices: &mut Vec<String>) -> Result<OptimizerParams> {
    raw.check_foreign("train.optimizer_params", notices)?;
    let betas = match raw.betas.as_deref() {
        None => [0.9, 0.999],
        Some([first, second]) => [first.0, second.0],
        Some(other) => bail!("train.optimizer_params.betas: {} numbers are given; AdamW takes 2", other.len()),
    };
    ensure!(
        betas.iter().all(|b| (0.0..1.0).contains(b)),
        "train.optimizer_params.betas: {betas:?} are not both from 0 up to (not including) 1"
    );
    let eps = raw.eps.map_or(1e-8, |e| e.0);
    ensure!(eps > 0.0, "train.optimizer_params.eps: {eps} must be more than 0");
    Ok(OptimizerParams { betas, eps, weight_decay: not_negative("train.optimizer_params.weight_decay", raw.weight_decay, 0.01)? })
}
