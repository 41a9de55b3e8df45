//! The two shapes of a file: flat, and ai-toolkit's job (`job: extension`, `config.process[0]`).

use crate::error::{Wrong, clash, explain};
use crate::findings::Findings;
use crate::reader;
use crate::run::{NO_GPU, RawRun, is_gpu};
use crate::tree::{self, Content, Node};
use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Job {
    job: Option<String>,
    config: JobConfig,
    meta: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JobConfig {
    name: Option<String>,
    process: Vec<IgnoredAny>,
}

/// The run that a file describes.
pub(crate) struct Opened {
    pub tree: Node,
    pub is_job: bool,
}

/// Reads either shape.
pub(crate) fn open(text: &str, origin: &str, wrong: &mut Vec<Wrong>, findings: &mut Findings) -> Result<Opened> {
    ensure!(!text.trim().is_empty(), "{origin} is empty");
    let tree = tree::parse(text).map_err(|e| explain(&e, text, origin))?;
    let is_job = tree.get("job").is_some() || tree.get("config").is_some();
    let tree = if is_job { process(tree, origin, wrong, findings)? } else { tree };
    Ok(Opened { tree, is_job })
}

/// What a job holds of a run, as a flat file would.
fn process(mut tree: Node, origin: &str, wrong: &mut Vec<Wrong>, findings: &mut Findings) -> Result<Node> {
    drop_idle_accumulation(&mut tree, findings);
    drop_clashes(&mut tree, wrong);
    let before = wrong.len();
    let job: Job = reader::read(&mut tree, wrong);
    if let Some(kind) = job.job.filter(|kind| kind != "extension" && kind != "train") {
        bail!("{origin}: job: {kind} is not a training job; only `extension` and `train` are");
    }
    let count = job.config.process.len();
    let is_read = !wrong[before..].iter().any(|wrong| "config.process".starts_with(&wrong.name));
    ensure!(count == 1 || !is_read, "{origin}: config.process has {count} entries; a config describes one run, so give it exactly one");
    if job.meta.is_some() {
        findings.notice("meta has no effect here: velatura writes its own metadata".to_string());
    }
    let mut config = tree.take("config").map(|entry| entry.node).unwrap_or_default();
    let name = config.take("name");
    let mut run = config.take("process").and_then(|entry| entry.node.into_items().into_iter().next()).unwrap_or_default();
    if let Some(name) = name {
        run.put_first(name);
    }
    Ok(run)
}

/// ai-toolkit keeps accumulation under two names, and files that it writes have both. There a 1 says nothing beside another number.
fn drop_idle_accumulation(job: &mut Node, findings: &mut Findings) {
    const NAMES: [&str; 2] = ["gradient_accumulation", "gradient_accumulation_steps"];
    let Some(Content::List(processes)) =
        job.get_mut("config").and_then(|config| config.get_mut("process")).map(|process| &mut process.content)
    else {
        return;
    };
    for train in processes.iter_mut().filter_map(|process| process.get_mut("train")) {
        let [one, other] = NAMES.map(|name| train.get(name).and_then(Node::number));
        let idle = match (one, other) {
            (Some(1.0), Some(count)) if count != 1.0 => 0,
            (Some(count), Some(1.0)) if count != 1.0 => 1,
            _ => continue,
        };
        train.take(NAMES[idle]);
        findings.notice(format!("train.{}: 1 has no effect beside train.{}", NAMES[idle], NAMES[1 - idle]));
    }
}

/// Keys that are given twice: what contradicts itself is wrong, and what is said twice is read once.
pub(crate) fn drop_clashes(tree: &mut Node, wrong: &mut Vec<Wrong>) {
    let (clashes, repeated) = tree.clashes();
    repeated.iter().for_each(|path| tree.remove(path));
    for found in clashes {
        tree.remove(&found.path);
        wrong.push(clash(found));
    }
}

/// Job files are written for other devices; what they say of it does no harm.
pub(crate) fn drop_device(raw: &mut RawRun, findings: &mut Findings) {
    if raw.device.as_deref().is_some_and(is_gpu) {
        let device = raw.device.take().unwrap_or_default();
        findings.notice(format!("device: {device} has no effect here: {NO_GPU}"));
    }
}
