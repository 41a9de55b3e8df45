//! Downloading with the `hf-hub` crate, which lays files out as the cache needs them and continues partial ones.
//!
//! `hf-hub` builds paths from two response headers (the commit and the etag) and panics on some malformed redirects, so the
//! headers of each file are looked at first ([`Head::fetch`]).

use super::local::{entry, is_commit, model_dir};
use super::select::{is_safe, needed};
use super::{Hub, OnProgress, Progress};
use anyhow::{Context, Result, anyhow, bail, ensure};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Fresh attempts at a file whose transfer broke off after it had made progress.
const ATTEMPTS: usize = 5;

pub(super) fn download(hub: &Hub, id: &str, progress: OnProgress) -> Result<PathBuf> {
    let cache = Cache::new(hub.cache.clone());
    let builder = ApiBuilder::from_cache(cache.clone()).with_endpoint(hub.endpoint.clone()).with_token(hub.token.clone());
    let api =
        builder.with_progress(false).with_user_agent("velatura", env!("CARGO_PKG_VERSION")).build().context("can't set up downloading")?;
    let info = api.model(id.to_owned()).info().map_err(|error| explain(hub, id, &error))?;
    ensure!(is_commit(&info.sha), "{} answered with the commit {:?}, which is no commit id", hub.endpoint, info.sha);
    let files: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
    if let Some(bad) = files.iter().find(|file| !is_safe(file)) {
        bail!("{} lists the file name {bad:?} in {id}, which would leave the model's folder; nothing was downloaded", hub.endpoint);
    }
    let needed = needed(id, &files)?;
    let snapshot = model_dir(&hub.cache, id).join("snapshots").join(&info.sha);
    for (number, file) in needed.iter().enumerate() {
        let path = snapshot.join(file);
        if path.is_file() {
            continue;
        }
        if path.is_symlink() {
            // the blob that it led to is gone; hf-hub would trip over the link
            std::fs::remove_file(&path).with_context(|| format!("can't remove the broken link {}", path.display()))?;
        }
        let mut report = |received_bytes, total_bytes| {
            progress(&Progress { file, number: number + 1, files: needed.len(), received_bytes, total_bytes });
        };
        fetch(hub, &api, id, &info.sha, file, &mut report).with_context(|| format!("can't download {file} of {id}"))?;
    }
    cache.model(id.to_owned()).create_ref(&info.sha).with_context(|| format!("can't write in {}", hub.cache.display()))?;
    Ok(entry(&snapshot, &needed))
}

/// One file, continued where it broke off, then checked.
fn fetch(hub: &Hub, api: &Api, id: &str, commit: &str, file: &str, report: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let repo = api.repo(Repo::with_revision(id.to_owned(), RepoType::Model, commit.to_owned()));
    let head = Head::fetch(hub, &repo.url(file)).map_err(|error| explain_request(hub, id, &error))?;
    head.check(commit)?;
    let partial = model_dir(&hub.cache, id).join("blobs").join(format!("{}.part", head.etag));
    for attempt in 1.. {
        let before = partial.metadata().map(|m| m.len()).unwrap_or(0);
        match repo.download_with_progress(file, Counter { report, received: 0, total: 0 }) {
            Ok(path) => return verify(&path, &head),
            Err(ApiError::InvalidResume) if attempt < ATTEMPTS => {
                std::fs::remove_file(&partial).with_context(|| format!("can't remove {}", partial.display()))?;
            }
            Err(error) => {
                let grew = partial.metadata().map(|m| m.len()).unwrap_or(0) > before;
                if !grew || attempt >= ATTEMPTS {
                    return Err(explain(hub, id, &error));
                }
            }
        }
    }
    unreachable!("the loop returns after the last attempt")
}

/// What the server says of a file before its bytes.
#[derive(Debug)]
struct Head {
    commit: String,
    etag: String,
    redirect_has_location: bool,
}

impl Head {
    /// Follows relative redirects, as `hf-hub` does; an absolute one leads to the storage and has the headers itself.
    fn fetch(hub: &Hub, url: &str) -> Result<Head, Box<ureq::Error>> {
        let agent = ureq::builder().try_proxy_from_env(true).redirects(0).build();
        let mut url = url.to_owned();
        for _ in 0..5 {
            let mut request = agent.get(&url).set("Range", "bytes=0-0");
            if let Some(token) = &hub.token {
                request = request.set("Authorization", &format!("Bearer {token}"));
            }
            let response = request.call()?;
            let location = response.header("Location").unwrap_or_default();
            if (300..400).contains(&response.status()) && location.starts_with('/') && !location.starts_with("//") {
                url = format!("{}{location}", origin(&url));
                continue;
            }
            let header = |name: &str| response.header(name).map(|value| value.replace('"', ""));
            return Ok(Head {
                commit: header("x-repo-commit").unwrap_or_default(),
                etag: header("x-linked-etag").or_else(|| header("etag")).unwrap_or_default(),
                redirect_has_location: !(300..400).contains(&response.status()) || location.starts_with("http"),
            });
        }
        Ok(Head { commit: String::new(), etag: String::new(), redirect_has_location: false })
    }

    fn check(&self, commit: &str) -> Result<()> {
        ensure!(self.redirect_has_location, "the server redirects to nowhere");
        ensure!(self.commit == commit, "the server sent the commit {:?} instead of {commit}", self.commit);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let sound = !self.etag.is_empty() && self.etag.len() <= 128 && self.etag.bytes().all(plain);
        ensure!(sound, "the server sent the etag {:?}, which is no content hash", self.etag);
        Ok(())
    }
}

/// Scheme and host of a URL.
fn origin(url: &str) -> &str {
    let start = url.find("://").map(|at| at + 3).unwrap_or(0);
    url[start..].find('/').map(|at| &url[..start + at]).unwrap_or(url)
}

/// Large files have the SHA-256 of their content as etag: a transfer that was continued wrongly shows here.
fn verify(path: &Path, head: &Head) -> Result<()> {
    if head.etag.len() != 64 || !head.etag.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(());
    }
    let mut file = std::fs::File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).with_context(|| format!("can't read {}", path.display()))? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    if crate::hex(&hash.finalize()) != head.etag.to_ascii_lowercase() {
        if let Ok(blob) = path.canonicalize() {
            let _ = std::fs::remove_file(blob);
        }
        let _ = std::fs::remove_file(path);
        bail!("its content doesn't match its hash, so it was removed; run the same command again");
    }
    Ok(())
}

/// hf-hub's progress to ours.
struct Counter<'a> {
    report: &'a mut dyn FnMut(u64, u64),
    received: u64,
    total: u64,
}

impl hf_hub::api::Progress for Counter<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        (self.received, self.total) = (0, size as u64);
    }
    fn update(&mut self, size: usize) {
        self.received += size as u64;
        (self.report)(self.received, self.total);
    }
    fn finish(&mut self) {}
}

fn explain(hub: &Hub, id: &str, error: &ApiError) -> anyhow::Error {
    match error {
        ApiError::RequestError(error) => explain_request(hub, id, error),
        ApiError::TooManyRetries(error) => explain(hub, id, error),
        ApiError::LockAcquisition(path) => anyhow!("another program is downloading it already (it holds {})", path.display()),
        other => anyhow!("{id} could not be downloaded from {}: {other}", hub.endpoint),
    }
}

fn explain_request(hub: &Hub, id: &str, error: &ureq::Error) -> anyhow::Error {
    let endpoint = &hub.endpoint;
    match error {
        ureq::Error::Status(401 | 403, _) if hub.token.is_none() => {
            anyhow!("{id} doesn't exist on {endpoint}, or is private or gated: accept its licence at {endpoint}/{id} and set HF_TOKEN")
        }
        ureq::Error::Status(401 | 403, _) => {
            anyhow!("{endpoint} refuses {id} to the token that is set: accept its licence at {endpoint}/{id}, or set another HF_TOKEN")
        }
        ureq::Error::Status(404, _) => anyhow!("{endpoint} has no model {id}; if a local folder was meant, it doesn't exist"),
        ureq::Error::Status(code, _) => anyhow!("{endpoint} answered with the error {code} for {id}; try again later"),
        ureq::Error::Transport(transport) => anyhow!(
            "{id} is not in the Hugging Face cache {}, and {endpoint} can't be reached ({}); check the network, or give the path of a local model",
            hub.cache.display(),
            transport.kind()
        ),
    }
}
