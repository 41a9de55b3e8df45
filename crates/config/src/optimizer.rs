//! `train.optimizer` and `train.optimizer_params`. The names, settings and ranges are those of the optimizers' files in `optim`.

use crate::scalar::Number;
use anyhow::{Context, Result, bail};
use optim::Chosen;
use serde::Serialize;
use serde_json::{Map, Value};

/// What happens to saved optimizer state when a resumed run names another optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOptimizerChange {
    /// The resume is refused.
    Stop,
    /// It goes on with the adapters, and with empty optimizer state.
    Fresh,
}

pub(crate) fn read(name: Option<&str>, params: Option<Map<String, Value>>) -> Result<Chosen> {
    let params = params.unwrap_or_default();
    check_values("train.optimizer_params", &params)?;
    let name = name.unwrap_or("adamw");
    // Told apart, so that the error names the key that is wrong.
    optim::optimizers::find(name).context("in train.optimizer")?;
    optim::choose(name, &params).context("in train.optimizer_params")
}

/// A key without a value must not pass for "the default".
pub(crate) fn check_values(section: &str, params: &Map<String, Value>) -> Result<()> {
    match params.iter().find(|(_, value)| value.is_null()) {
        Some((key, _)) => bail!("{section}.{key} has no value; give one or remove the key"),
        None => Ok(()),
    }
}

/// The rate, or the optimizer's usual one; the user hears of rates that mean something else to this optimizer.
pub(crate) fn rate(chosen: &Chosen, given: Option<Number>, notices: &mut Vec<String>) -> f64 {
    if is_relative(chosen) {
        return 1.0;
    }
    let Some(Number(lr)) = given else { return chosen.rates.default };
    let [low, high] = chosen.rates.usual;
    let (name, default) = (chosen.name, chosen.rates.default);
    if lr > 0.0 && lr < low && default == 1.0 {
        notices.push(format!(
            "train.lr: {lr:e} is a factor on the rate that {name} finds by itself, so it would learn very slowly; 1 is usual (and what \
             ai-toolkit takes instead)"
        ));
    } else if lr > 0.0 && !(low..=high).contains(&lr) {
        notices.push(format!("train.lr: {lr:e} is outside of what {name} is usually given ({low:e} to {high:e}, by itself {default:e})"));
    }
    lr
}

/// Whether the optimizer sets the rate by itself; what the config calls rates are then shares of it, and 1.
fn is_relative(chosen: &Chosen) -> bool {
    chosen.params.get("relative_step") == Some(&Value::Bool(true))
}

/// A rate beside an optimizer that sets it by itself would be ignored; 1 is what a resolved config holds.
pub(crate) fn check_relative(chosen: &Chosen, rates: &[(&str, Option<Number>)]) -> Result<()> {
    match rates.iter().find(|(_, rate)| rate.is_some_and(|rate| rate.0 != 1.0)) {
        Some((key, Some(Number(rate)))) if is_relative(chosen) => bail!(
            "{key}: {rate:e} and train.optimizer_params.relative_step: true exclude each other: {} then sets the rate by itself; remove one",
            chosen.name
        ),
        _ => Ok(()),
    }
}

pub(crate) fn on_change(word: Option<&str>) -> Result<OnOptimizerChange> {
    match word.unwrap_or("stop") {
        "stop" => Ok(OnOptimizerChange::Stop),
        "fresh" => Ok(OnOptimizerChange::Fresh),
        other => bail!("train.on_optimizer_change: {other} is unknown; it is stop or fresh"),
    }
}
