//! Keys of older configs: translated into today's with a notice, and refused where both say different things.

use crate::findings::Findings;
use crate::scalar::Whole;
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

/// `use_8bit_optimizer: true` (under the key `at`) as the optimizer of that name.
pub(crate) fn optimizer(eight_bit: Option<bool>, at: &str, name: Option<String>, findings: &mut Findings) -> Result<Option<String>> {
    if eight_bit != Some(true) {
        return Ok(name);
    }
    let given = name.as_deref().unwrap_or("adamw").trim().to_ascii_lowercase();
    let translated = match given.as_str() {
        "adamw" | "adam" | "lion" | "prodigy" => format!("{given}8bit"),
        full if full.ends_with("8bit") => return Ok(name),
        other => bail!("{at}.use_8bit_optimizer: true contradicts train.optimizer: {other}, which has no 8-bit form; remove one"),
    };
    findings.notice(format!("{at}.use_8bit_optimizer: true is read as train.optimizer: {translated}"));
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
