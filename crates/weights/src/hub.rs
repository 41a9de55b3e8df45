//! A model's name to a folder (or file) on disk: a path as it is, `owner/name` from the local Hugging Face cache or downloaded.
//!
//! The cache is the one that Python's `huggingface_hub` uses, so models that are there already are found. Only the files that
//! training needs are downloaded, never pickles. `refs/main` is written last: an interrupted download is continued, not mistaken for
//! a model. Names that come from the server become parts of paths only after a check.

mod download;
mod local;
mod select;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    pub file: &'a str,
    /// Number of this file, from 1, and of all files.
    pub number: usize,
    pub files: usize,
    pub received_bytes: u64,
    pub total_bytes: u64,
}

/// Called as bytes arrive (every 64 KB or so).
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress<'_>);

/// An existing path, or the local folder of a Hugging Face model, downloaded if need be; settings from the environment.
pub fn resolve(name_or_path: &str, progress: OnProgress) -> Result<PathBuf> {
    if Path::new(name_or_path).exists() {
        return Ok(PathBuf::from(name_or_path));
    }
    Hub::from_env()?.resolve(name_or_path, progress)
}

/// Where models come from and go to.
#[derive(Clone, Debug)]
pub struct Hub {
    /// The folder with `models--owner--name` folders.
    pub cache: PathBuf,
    /// `https://huggingface.co`, or a mirror.
    pub endpoint: String,
    pub token: Option<String>,
    /// Never use the network.
    pub offline: bool,
}

impl Hub {
    /// By the variables that `huggingface_hub` reads: `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`,
    /// `HUGGING_FACE_HUB_TOKEN`, `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`.
    pub fn from_env() -> Result<Hub> {
        Hub::from_variables(&|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Hub> {
        let home = || variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from);
        let base = variable("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("XDG_CACHE_HOME").map(|dir| Path::new(&dir).join("huggingface")))
            .or_else(|| home().map(|dir| dir.join(".cache").join("huggingface")));
        let cache = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE")).map(PathBuf::from);
        let cache = cache.or_else(|| base.as_ref().map(|base| base.join("hub")));
        let token_path = variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| base.map(|base| base.join("token")));
        let stored_token = || token_path.and_then(|path| std::fs::read_to_string(path).ok());
        let token = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(stored_token);
        let yes = |value: String| ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str());
        Ok(Hub {
            cache: cache.context("can't tell where the Hugging Face cache is: none of HF_HUB_CACHE, HF_HOME and HOME is set")?,
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()).trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
            offline: variable("HF_HUB_OFFLINE").is_some_and(yes),
        })
    }

    /// See [`resolve`].
    pub fn resolve(&self, name_or_path: &str, progress: OnProgress) -> Result<PathBuf> {
        let path = Path::new(name_or_path);
        if path.exists() {
            return Ok(path.to_owned());
        }
        if !is_model_id(name_or_path) {
            bail!("the model {name_or_path} doesn't exist (it looks like a local path; a Hugging Face model is given as owner/name)");
        }
        let missing = match local::cached(&self.cache, name_or_path)? {
            local::Cached::Complete(path) => return Ok(path),
            local::Cached::Missing(what) => what,
        };
        if self.offline {
            bail!(
                "{name_or_path} is not complete in the Hugging Face cache {} ({missing}), and HF_HUB_OFFLINE forbids downloading it",
                self.cache.display()
            );
        }
        download::download(self, name_or_path, progress)
    }
}

/// `owner/name` as Hugging Face allows it, and nothing that is more likely a path: no such folder as `owner`, no file extension of
/// a model.
pub fn is_model_id(name: &str) -> bool {
    let Some((owner, model)) = name.split_once('/') else { return false };
    let part = |part: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        !part.is_empty()
            && part.len() <= 96
            && part.bytes().all(allowed)
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.contains("..")
    };
    let file = [".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".gguf", ".json"].iter().any(|end| model.ends_with(end));
    part(owner) && part(model) && !file && !Path::new(owner).is_dir()
}

#[cfg(test)]
mod tests;
