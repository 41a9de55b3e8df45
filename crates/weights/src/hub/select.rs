//! Which files of a repository are needed to train on it.

use crate::checkpoint::COMPONENTS;
use crate::weight_files::{WeightFiles, choose, pickles};
use anyhow::{Result, bail, ensure};

const TOKENIZER: &[&str] =
    &["tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];

/// The files to have, of all `files` (paths with `/`); an error in one sentence if they make no Stable Diffusion model.
pub(super) fn needed(id: &str, files: &[String]) -> Result<Vec<String>> {
    let has = |path: &str| files.iter().any(|file| file == path);
    let inside = |folder: &str| files.iter().any(|file| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')));
    if !has("model_index.json") && !inside("unet") {
        return single_file(id, files);
    }
    ensure!(
        !inside("text_encoder_2") && !inside("transformer"),
        "{id} is a model with a second text encoder or a transformer (SDXL, SD 3, FLUX or newer); this version trains SD 1.x and 2.x"
    );
    let mut needed: Vec<String> = Vec::new();
    for component in COMPONENTS {
        let names = || files.iter().filter_map(|file| file.strip_prefix(component)?.strip_prefix('/')).filter(|name| !name.contains('/'));
        let Some(weights) = choose(names()) else {
            let found =
                pickles(names()).first().map(|name| format!(", only the pickle {name}, which is never unpickled")).unwrap_or_default();
            bail!("{id} has no safetensors weights of the {component}{found}");
        };
        let weights = match weights {
            WeightFiles::Single(name) => vec![name],
            WeightFiles::Sharded { index, shards } => [vec![index], shards].concat(),
        };
        ensure!(has(&format!("{component}/config.json")), "{id} has no {component}/config.json");
        needed.push(format!("{component}/config.json"));
        needed.extend(weights.into_iter().map(|name| format!("{component}/{name}")));
    }
    let tokenizer: Vec<String> = TOKENIZER.iter().map(|name| format!("tokenizer/{name}")).filter(|path| has(path)).collect();
    let complete = has("tokenizer/tokenizer.json") || (has("tokenizer/vocab.json") && has("tokenizer/merges.txt"));
    ensure!(complete, "{id} has no tokenizer (tokenizer/tokenizer.json, or vocab.json with merges.txt)");
    let others = ["model_index.json", "scheduler/scheduler_config.json"].into_iter().filter(|path| has(path)).map(str::to_owned);
    // small files first: a mistake shows before gigabytes have come
    let mut all: Vec<String> = others.chain(tokenizer).chain(needed).collect();
    all.sort_by_key(|path| path.ends_with(".safetensors"));
    Ok(all)
}

/// A repository that isn't in diffusers layout but has one checkpoint at its root.
fn single_file(id: &str, files: &[String]) -> Result<Vec<String>> {
    let root = || files.iter().map(String::as_str).filter(|file| !file.contains('/'));
    let checkpoints: Vec<&str> = root().filter(|file| file.ends_with(".safetensors")).collect();
    match checkpoints[..] {
        [only] => Ok(vec![only.to_owned()]),
        [] => match pickles(root()).first() {
            Some(name) => bail!("{id} holds only {name}, a PyTorch pickle that is never unpickled here; find a safetensors version"),
            None => bail!("{id} holds no model: neither a diffusers folder nor a .safetensors file"),
        },
        _ => bail!("{id} holds several checkpoints ({}); download one and give its path", checkpoints.join(", ")),
    }
}

/// Whether a file name from a server may become a path below the snapshot's folder.
pub(super) fn is_safe(path: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', ':', '\0']) && !part.chars().any(char::is_control)
    };
    path.len() <= 512 && path.split('/').all(part)
}
