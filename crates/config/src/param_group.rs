//! `train.param_groups:` rates and weight decay of some of the trained parameters.

use crate::scalar::{Number, Texts};
use crate::section::section;
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

pub(crate) fn resolve(raw: Vec<RawParamGroup>, notices: &mut Vec<String>) -> Result<Vec<ParamGroup>> {
    raw.into_iter().enumerate().map(|(i, raw)| one(&format!("train.param_groups[{i}]"), raw, notices)).collect()
}

fn one(key: &str, raw: RawParamGroup, notices: &mut Vec<String>) -> Result<ParamGroup> {
    raw.check_foreign(key, notices)?;
    let contains = raw.contains.map(|t| t.0).unwrap_or_default();
    ensure!(
        !contains.is_empty() && contains.iter().all(|text| !text.is_empty()),
        "{key}.contains is missing: give parts of the names of the parameters, such as down_blocks or attn2.to_k"
    );
    let rate = match (raw.lr, raw.lr_scale) {
        (Some(_), Some(_)) => bail!("{key}.lr and {key}.lr_scale are both given; keep one"),
        (Some(lr), None) => GroupRate::Rate(lr.0),
        (None, scale) => GroupRate::Scale(scale.map_or(1.0, |s| s.0)),
    };
    let (GroupRate::Rate(number) | GroupRate::Scale(number)) = rate;
    ensure!(number >= 0.0, "{key}: a rate of {number} is negative");
    let weight_decay = raw.weight_decay.map(|w| w.0);
    ensure!(weight_decay.is_none_or(|w| w >= 0.0), "{key}.weight_decay: {} is negative", weight_decay.unwrap_or_default());
    Ok(ParamGroup { contains, rate, weight_decay })
}
