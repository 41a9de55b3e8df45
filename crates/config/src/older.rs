//! Keys of older configs: translated into today's with a notice, and refused where both say different things.

use crate::findings::Findings;
use crate::scalar::{Flag, Whole};
use anyhow::{Result, bail};

/// `mixed_precision` as `train.dtype`; `dtype` is what the file says itself.
pub(crate) fn precision(mixed: Option<String>, dtype: Option<String>, findings: &mut Findings) -> Result<Option<String>> {
    let Some(mixed) = mixed.filter(|m| !m.trim().is_empty()) else { return Ok(dtype) };
    let translated = match mixed.trim() {
        "no" | "fp32" | "float32" => "fp32",
        "bf16" | "bfloat16" => "bf16",
        "fp16" | "float16" => "fp16",
        other => bail!("train.mixed_precision: {other} is unknown; it is no, fp16 or bf16 (or write train.dtype)"),
    };
    match dtype {
        Some(dtype) if base::DType::parse(dtype.trim()) != base::DType::parse(translated) => {
            bail!("train.mixed_precision: {mixed} contradicts train.dtype: {dtype}; keep train.dtype")
        }
        Some(dtype) => Ok(Some(dtype)),
        None => {
            findings.notice(format!("train.mixed_precision: {mixed} is read as train.dtype: {translated}"));
            Ok(Some(translated.to_string()))
        }
    }
}

/// `use_8bit_optimizer`, which older files have in either section, as the optimizer of that name; `name` is what the file says itself.
pub(crate) fn optimizer(flags: [(&str, Option<Flag>); 2], name: Option<String>, findings: &mut Findings) -> Result<Option<String>> {
    let given: Vec<(String, bool)> =
        flags.iter().filter_map(|(section, flag)| Some((format!("{section}.use_8bit_optimizer"), flag.as_ref()?.0))).collect();
    let Some((key, eight_bit)) = given.first() else { return Ok(name) };
    if let Some((other, _)) = given.iter().find(|(_, value)| value != eight_bit) {
        bail!("{key}: {eight_bit} contradicts {other}: {}; keep train.optimizer alone", !eight_bit);
    }
    // A name that is unknown is told as that.
    let Ok(entry) = optim::optimizers::find(name.as_deref().unwrap_or("adamw")) else { return Ok(name) };
    let translated = format!("{}8bit", entry.name);
    match (eight_bit, entry.name.ends_with("8bit")) {
        (true, true) | (false, false) => return Ok(name),
        (false, true) => bail!("{key}: false contradicts train.optimizer: {}; remove one", name.unwrap_or_default()),
        (true, false) => {}
    }
    if optim::optimizers::find(&translated).is_err() {
        bail!("{key}: true contradicts train.optimizer: {}, which has no 8-bit form; remove one", name.unwrap_or_default());
    }
    findings.notice(format!("{key}: true is read as train.optimizer: {translated}"));
    Ok(Some(translated))
}

/// `train.num_workers` as `dataloader.num_workers`; `given` is what the file says there.
pub(crate) fn num_workers(older: Whole, given: Option<Whole>, findings: &mut Findings) -> Result<Option<Whole>> {
    match given {
        Some(given) if given != older => {
            bail!("train.num_workers: {} contradicts dataloader.num_workers: {}; keep dataloader.num_workers", older.0, given.0)
        }
        _ => {
            findings.notice(format!("train.num_workers: {0} is read as dataloader.num_workers: {0}", older.0));
            Ok(Some(older))
        }
    }
}
