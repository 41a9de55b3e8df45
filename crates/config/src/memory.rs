//! `memory:` how much memory a run may take.

use crate::findings::Findings;
use crate::scalar::WholeOrText;
use crate::section::section;
use anyhow::{Context, Result, ensure};
use serde::Serialize;

section! {
    RawMemory {
        /// Bytes, or a text such as `8GB` (10⁹ bytes) or `8GiB` (2³⁰ bytes); 0: what is free.
        budget: WholeOrText,
    }
    no effect {}
    not yet {}
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryConfig {
    /// Bytes that the plan's peak must not exceed; 0: no limit but the machine's.
    pub budget: u64,
}

pub(crate) fn resolve(raw: RawMemory, findings: &mut Findings) -> MemoryConfig {
    raw.check_foreign("memory", findings);
    let budget = match raw.budget {
        None => Ok(0),
        Some(WholeOrText::Whole(bytes)) => Ok(bytes),
        Some(WholeOrText::Text(text)) => bytes(&text),
    };
    MemoryConfig { budget: findings.or(budget, 0) }
}

/// `8GB`, `1.5 GiB`, `800M`, `1000`.
fn bytes(text: &str) -> Result<u64> {
    let wrong = || format!("memory.budget: `{text}` is not a size; write bytes, or a number with KB, MB, GB (or KiB, MiB, GiB)");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let number: f64 = trimmed[..digits].parse().ok().with_context(wrong)?;
    let unit = match trimmed[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => f64::from(1u32 << 10),
        "mib" => f64::from(1u32 << 20),
        "gib" => f64::from(1u32 << 30),
        _ => return Err(anyhow::anyhow!(wrong())),
    };
    ensure!(number * unit <= 1e18, "memory.budget: `{text}` is more than any machine has");
    Ok((number * unit) as u64)
}
