//! `qtype`: what quantized weights are kept as, by the names that ai-toolkit, quanto and torchao use.

use crate::findings::Findings;
use anyhow::{Result, bail};
use base::quantized::Scheme;
use serde::Serializer;

/// The scheme of weights that are to be quantized; `unnamed` if the key is not given.
pub(crate) fn read(key: &str, name: Option<&str>, unnamed: Scheme, findings: &mut Findings) -> Result<Scheme> {
    let Some(given) = name.map(str::trim).filter(|name| !name.is_empty()) else {
        findings.notice(format!("{key} is not given: quantized weights are kept as {}", canonical(unnamed)));
        return Ok(unnamed);
    };
    let name = given.to_ascii_lowercase();
    let scheme = match name.as_str() {
        "qint8" | "int8" | "uint8" => Scheme::Int8,
        "nf4" | "qint4" | "int4" | "uint4" => Scheme::Nf4,
        ara if ara.contains('|') => bail!("{key}: {given}: accuracy-recovery adapters are not supported; use qint8 or nf4"),
        float if ["float", "fp8", "fp4"].iter().any(|part| float.contains(part)) => {
            bail!("{key}: {given} is not supported; use qint8 (8 bits a number as well, and nearer to the weights) or nf4 (4 bits)")
        }
        _ => bail!("{key}: {given} is not supported; use qint8 (8 bits a number) or nf4 (4 bits)"),
    };
    if !matches!(name.as_str(), "qint8" | "int8" | "nf4") {
        findings.notice(format!("{key}: {given} is kept as {}, which has as many bits", canonical(scheme)));
    }
    Ok(scheme)
}

/// The name that resolved configs use.
pub(crate) fn canonical(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Int8 => "qint8",
        Scheme::Nf4 => "nf4",
    }
}

pub(crate) fn serialize<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(canonical(*scheme))
}
