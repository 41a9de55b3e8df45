//! The keys of a dataset that weigh the parts of its pictures.

use crate::dataset::{RawDataset, rate};
use crate::findings::Findings;
use crate::{path, run};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MaskConfig {
    /// A folder of masks. At most one of this and `alpha_mask` is given.
    pub mask_path: Option<PathBuf>,
    /// The pictures' own transparency.
    pub alpha_mask: bool,
    /// Black counts instead of white.
    pub invert_mask: bool,
    /// What the rest counts.
    pub mask_min_value: f64,
    /// Whether the weights of a picture are divided by their mean.
    pub normalize_mask: bool,
}

impl MaskConfig {
    pub fn is_on(&self) -> bool {
        self.alpha_mask || self.mask_path.is_some()
    }
}

/// `section` names the dataset.
pub(crate) fn resolve(raw: &RawDataset, section: &str, findings: &mut Findings) -> MaskConfig {
    let key = |name: &str| format!("{section}.{name}");
    let mask_path = run::text(raw.mask_path.clone()).map(|folder| path::read(&key("mask_path"), &folder)).transpose();
    let config = MaskConfig {
        mask_path: findings.or(mask_path, None),
        alpha_mask: raw.alpha_mask.is_some_and(|f| f.0),
        invert_mask: raw.invert_mask.is_some_and(|f| f.0),
        mask_min_value: findings.or(rate(&key("mask_min_value"), raw.mask_min_value), 0.0),
        normalize_mask: raw.normalize_mask.is_none_or(|f| f.0),
    };
    if config.alpha_mask && config.mask_path.is_some() {
        let keys = [key("alpha_mask"), key("mask_path")];
        findings.wrong(format!("{} and {} exclude each other: a picture has one mask; keep one of them", keys[0], keys[1]));
    }
    let settings =
        [("invert_mask", config.invert_mask), ("mask_min_value", config.mask_min_value > 0.0), ("normalize_mask", !config.normalize_mask)];
    for (name, _) in settings.iter().filter(|(_, given)| *given && !config.is_on()) {
        findings.notice(format!("{} has no effect without mask_path or alpha_mask", key(name)));
    }
    config
}
