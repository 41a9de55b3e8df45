//! The two shapes of a file: flat, and ai-toolkit's job (`job: extension`, `config.process[0]`).

use crate::error::{Failure, explain};
use crate::findings::Findings;
use crate::run::RawRun;
use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// Keys that tell a job file from a flat one; all others are left to the real reading.
#[derive(Deserialize)]
struct Shape {
    job: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    job: Option<String>,
    config: JobConfig,
    #[serde(default)]
    meta: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobConfig {
    name: Option<String>,
    process: Vec<RawRun>,
}

/// Reads either shape into the raw form of a run.
pub(crate) fn read(text: &str, origin: &str, findings: &mut Findings) -> Result<RawRun> {
    ensure!(!text.trim().is_empty(), "{origin} is empty");
    match parse::<Shape>(text) {
        Ok(shape) if shape.job.is_some() || shape.config.is_some() => read_job(text, origin, findings),
        _ => parse(text).map_err(|e| explain(&e, text, origin)),
    }
}

/// Typed reading with the strictness that every file gets: YAML 1.2 booleans, no duplicate keys.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> std::result::Result<T, Box<Failure>> {
    let mut track = serde_path_to_error::Track::new();
    let options = serde_saphyr::options! { strict_booleans: true };
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        T::deserialize(serde_path_to_error::Deserializer::new(document, &mut track))
    });
    read.map_err(|error| Box::new(Failure { error, path: track.path().to_string() }))
}

fn read_job(text: &str, origin: &str, findings: &mut Findings) -> Result<RawRun> {
    let job: Job = parse(text).map_err(|e| explain(&e, text, origin))?;
    if let Some(kind) = job.job.filter(|kind| kind != "extension" && kind != "train") {
        bail!("{origin}: job: {kind} is not a training job; only `extension` and `train` are");
    }
    let count = job.config.process.len();
    ensure!(count == 1, "{origin}: config.process has {count} entries; a config describes one run, so give it exactly one");
    let mut raw = job.config.process.into_iter().next().unwrap_or_default();
    raw.name = job.config.name.or(raw.name);
    if raw.device.as_deref().is_some_and(|device| device.starts_with("cuda") || device == "mps") {
        let device = raw.device.take().unwrap_or_default();
        findings.notice(format!("device: {device} has no effect here: this build trains on the CPU"));
    }
    if job.meta.is_some() {
        findings.notice("meta has no effect here: velatura writes its own metadata".to_string());
    }
    Ok(raw)
}
