//! `train.optimizer` and `train.optimizer_params`. The names, settings and ranges are those of the optimizers' files in `optim`.

use crate::error::{UNKNOWN, with_home};
use crate::findings::Findings;
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

/// The optimizer with its settings; the default one without any where its name is wrong.
pub(crate) fn read(name: Option<&str>, params: Option<Map<String, Value>>, findings: &mut Findings) -> Result<Chosen> {
    let params = with_values("train.optimizer_params", params.unwrap_or_default(), findings);
    let name = name.unwrap_or("adamw");
    // Told apart, so that the error names the key that is wrong.
    if let Err(error) = optim::optimizers::find(name).context("in train.optimizer") {
        findings.wrong(format!("{error:#}"));
        return optim::choose("adamw", &Map::new());
    }
    settle("train.optimizer_params", params, |params| optim::choose(name, params).context("in train.optimizer_params"), findings)
}

/// A key without a value must not pass for "the default".
pub(crate) fn with_values(section: &str, mut params: Map<String, Value>, findings: &mut Findings) -> Map<String, Value> {
    params.retain(|key, value| {
        if value.is_null() {
            findings.wrong(format!("{section}.{key} has no value; give one or remove the key"));
        }
        !value.is_null()
    });
    params
}

/// Reads settings whose reader stops at the first that is wrong: without that one it finds the next. What is left of them is read.
/// Those that it doesn't know, which may be many, are told apart first, each by itself.
pub(crate) fn settle<T>(
    section: &str,
    mut params: Map<String, Value>,
    read: impl Fn(&Map<String, Value>) -> Result<T>,
    findings: &mut Findings,
) -> Result<T> {
    params.retain(|key, value| {
        let alone = Map::from_iter([(key.clone(), value.clone())]);
        let error = read(&alone).err().map(|error| format!("{error:#}")).filter(|error| error.contains(UNKNOWN));
        let is_known = error.is_none();
        error.into_iter().for_each(|error| findings.wrong(with_home(error, section)));
        is_known
    });
    loop {
        let error = match read(&params) {
            Err(error) if !params.is_empty() => format!("{error:#}"),
            done => return done,
        };
        let without = |key: &String| params.iter().filter(|(other, _)| *other != key).map(|(k, v)| (k.clone(), v.clone())).collect();
        let others = |key: &String| read(&without(key)).map_or_else(|other| format!("{other:#}") != error, |_| true);
        params = params.keys().find(|key| others(key)).map(without).unwrap_or_default();
        findings.wrong(with_home(error, section));
    }
}

/// The rate, or the optimizer's usual one; the user hears of rates that mean something else to this optimizer.
pub(crate) fn rate(chosen: &Chosen, given: Option<Number>, findings: &mut Findings) -> f64 {
    if is_relative(chosen) {
        return 1.0;
    }
    let Some(Number(lr)) = given else { return chosen.rates.default };
    let [low, high] = chosen.rates.usual;
    let (name, default) = (chosen.name, chosen.rates.default);
    if lr > 0.0 && lr < low && default == 1.0 {
        findings.notice(format!(
            "train.lr: {lr:e} is a factor on the rate that {name} finds by itself, so it would learn very slowly; 1 is usual (and what \
             ai-toolkit takes instead)"
        ));
    } else if lr > 0.0 && !(low..=high).contains(&lr) {
        findings
            .notice(format!("train.lr: {lr:e} is outside of what {name} is usually given ({low:e} to {high:e}, by itself {default:e})"));
    }
    lr
}

/// Whether the optimizer sets the rate by itself; what the config calls rates are then shares of it, and 1.
fn is_relative(chosen: &Chosen) -> bool {
    chosen.params.get("relative_step") == Some(&Value::Bool(true))
}

/// A rate beside an optimizer that sets it by itself would be ignored; 1 changes nothing, and is what a resolved config holds.
pub(crate) fn check_relative(chosen: &Chosen, rates: &[(String, Option<Number>)], findings: &mut Findings) {
    let given = rates.iter().filter_map(|(key, rate)| Some((key, rate.filter(|rate| rate.0 != 1.0)?.0)));
    for (key, rate) in given.filter(|_| is_relative(chosen)) {
        findings.wrong(format!(
            "{key}: {rate:e} and train.optimizer_params.relative_step: true exclude each other: {} then sets the rate by itself; remove one",
            chosen.name
        ));
    }
}

pub(crate) fn on_change(word: Option<&str>) -> Result<OnOptimizerChange> {
    match word.unwrap_or("stop") {
        "stop" => Ok(OnOptimizerChange::Stop),
        "fresh" => Ok(OnOptimizerChange::Fresh),
        other => bail!("train.on_optimizer_change: {other} is unknown; it is stop or fresh"),
    }
}
