//! `train.param_groups:` rates and weight decay of some of the trained parameters.

use crate::findings::Findings;
use crate::scalar::{Number, Texts};
use crate::section::section;
use crate::train::not_negative;
use anyhow::{Result, bail, ensure};
use serde::Serialize;

section! {
    RawParamGroup {
        /// Parameters whose name contains one of these belong to the group. The first group of the list that fits counts.
        contains: Texts,
        /// Their rate, instead of `unet_lr` or `text_encoder_lr`.
        lr: Number,
        /// A factor on `unet_lr` or `text_encoder_lr`, instead of a rate.
        lr_scale: Number,
        /// Instead of the optimizer's.
        weight_decay: Number,
    }
    no effect {}
    not yet {}
}

/// How a group's rate is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GroupRate {
    Rate(f64),
    Scale(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    pub contains: Vec<String>,
    pub rate: GroupRate,
    /// `None`: the optimizer's.
    pub weight_decay: Option<f64>,
}

/// In the keys that it is read from.
impl Serialize for ParamGroup {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("contains", &self.contains)?;
        match self.rate {
            GroupRate::Rate(lr) => map.serialize_entry("lr", &lr)?,
            GroupRate::Scale(scale) => map.serialize_entry("lr_scale", &scale)?,
        }
        if let Some(decay) = self.weight_decay {
            map.serialize_entry("weight_decay", &decay)?;
        }
        map.end()
    }
}

pub(crate) fn resolve(raw: Vec<RawParamGroup>, findings: &mut Findings) -> Vec<ParamGroup> {
    raw.into_iter().enumerate().map(|(i, raw)| one(&format!("train.param_groups[{i}]"), raw, findings)).collect()
}

fn one(key: &str, raw: RawParamGroup, findings: &mut Findings) -> ParamGroup {
    raw.check_foreign(key, findings);
    let contains = raw.contains.map(|t| t.0).unwrap_or_default();
    if contains.is_empty() || contains.iter().any(String::is_empty) {
        findings.wrong(format!("{key}.contains is missing: give parts of the names of the parameters, such as down_blocks or attn2.to_k"));
    }
    let rate = findings.or(rate(key, raw.lr, raw.lr_scale), GroupRate::Scale(1.0));
    let weight_decay = findings.or(raw.weight_decay.map(|w| decay(key, w.0)).transpose(), None);
    ParamGroup { contains, rate, weight_decay }
}

fn rate(key: &str, lr: Option<Number>, scale: Option<Number>) -> Result<GroupRate> {
    match (lr, scale) {
        (Some(_), Some(_)) => bail!("{key}.lr and {key}.lr_scale are both given; keep one"),
        (Some(lr), None) => crate::rates::rate(&format!("{key}.lr"), Some(lr), 0.0).map(GroupRate::Rate),
        (None, scale) => Ok(GroupRate::Scale(not_negative(&format!("{key}.lr_scale"), scale, 1.0)?)),
    }
}

fn decay(key: &str, decay: f64) -> Result<f64> {
    let [least, most] = optim::WEIGHT_DECAY;
    ensure!((least..=most).contains(&decay), "{key}.weight_decay: {decay} is not from {least} to {most}");
    Ok(decay)
}
