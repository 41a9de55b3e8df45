use super::*;
use crate::hex;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// One request as the server saw it.
#[derive(Clone, Debug, Default)]
struct Request {
    path: String,
    range: String,
    authorization: String,
}

/// A repository served over HTTP with the routes and headers of the hub, and ways to misbehave.
#[derive(Clone, Default)]
struct Site {
    files: BTreeMap<String, Vec<u8>>,
    /// More names in the listing, without content.
    listed: Vec<String>,
    sha: Option<String>,
    commit_header: Option<String>,
    etag_header: Option<String>,
    status: Option<u16>,
    /// Cuts the transfer of this file once after so many bytes.
    cut: Option<(String, usize)>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Site {
    fn start(self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = self.requests.clone();
        let mut site = self;
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| site.answer(stream)));
        Server { endpoint, requests, cache: tempfile::tempdir().unwrap() }
    }

    fn answer(&mut self, mut stream: TcpStream) {
        let Some(request) = read_request(&stream) else { return };
        self.requests.lock().unwrap().push(request.clone());
        if let Some(status) = self.status {
            let _ = write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        if request.path == "/api/models/some/model/revision/main" {
            let names = self.files.keys().chain(&self.listed).map(|name| json!({ "rfilename": name })).collect::<Vec<_>>();
            let body = json!({ "sha": self.sha.as_deref().unwrap_or(COMMIT), "siblings": names }).to_string();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            return;
        }
        let file = request.path.strip_prefix(&format!("/some/model/resolve/{COMMIT}/")).map(str::to_owned);
        let Some((name, content)) = file.and_then(|name| Some((name.clone(), self.files.get(&name)?.clone()))) else {
            let _ = write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        };
        self.send(&mut stream, &name, &content, &request.range);
    }

    fn send(&mut self, stream: &mut TcpStream, name: &str, content: &[u8], range: &str) {
        let (from, to) = range.strip_prefix("bytes=").and_then(|r| r.split_once('-')).unwrap_or(("0", ""));
        let from: usize = from.parse().unwrap();
        let end = to.parse().map(|last: usize| last + 1).unwrap_or(content.len()).min(content.len());
        let etag = self.etag_header.clone().unwrap_or_else(|| hex(&Sha256::digest(content)));
        let commit = self.commit_header.as_deref().unwrap_or(COMMIT);
        let _ = write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\nETag: \"{etag}\"\r\n\
             X-Repo-Commit: {commit}\r\nConnection: close\r\n\r\n",
            end - from,
            end.saturating_sub(1),
            content.len()
        );
        let mut body = &content[from.min(end)..end];
        if let Some((_, bytes)) = self.cut.take_if(|(cut, bytes)| cut == name && body.len() > *bytes) {
            body = &body[..bytes];
        }
        let _ = stream.write_all(body);
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let mut request = Request { path: lines.next()?.split(' ').nth(1)?.to_owned(), ..Request::default() };
    for line in lines {
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => request.range = value.to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => request.authorization = value.to_owned(),
            _ => {}
        }
    }
    Some(request)
}

struct Server {
    endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
    cache: tempfile::TempDir,
}

impl Server {
    fn hub(&self) -> Hub {
        Hub { cache: self.cache.path().join("hub"), endpoint: self.endpoint.clone(), token: Some("hf_secret".to_owned()), offline: false }
    }
    fn resolve(&self) -> Result<PathBuf> {
        self.hub().resolve("some/model", &mut |_| {})
    }
    fn error(&self) -> String {
        let error = format!("{:#}", self.resolve().unwrap_err());
        assert!(error.lines().count() == 1 && !error.contains("hf_secret"), "{error}");
        error
    }
    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// A repository with what diffusers models have, needed or not.
fn diffusers_site() -> Site {
    let names = [
        "README.md",
        "model_index.json",
        "v1-5-pruned.ckpt",
        "v1-5-pruned.safetensors",
        "safety_checker/model.safetensors",
        "scheduler/scheduler_config.json",
        "tokenizer/merges.txt",
        "tokenizer/vocab.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "text_encoder/pytorch_model.bin",
        "unet/config.json",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ];
    let content = |name: &str| name.bytes().cycle().take(if name.ends_with(".safetensors") { 200_000 } else { 100 }).collect();
    Site { files: names.iter().map(|name| ((*name).to_owned(), content(name))).collect(), ..Site::default() }
}

#[test]
fn a_model_is_downloaded_once_and_then_found_in_the_cache() {
    let site = diffusers_site();
    let files = site.files.clone();
    let server = site.start();
    let mut seen = Vec::new();
    let path = server.hub().resolve("some/model", &mut |p| seen.push((p.file.to_owned(), p.received_bytes, p.total_bytes))).unwrap();
    assert_eq!(path, server.hub().cache.join("models--some--model/snapshots").join(COMMIT));
    let unet = "unet/diffusion_pytorch_model.safetensors";
    for needed in [
        unet,
        "vae/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/vocab.json",
        "scheduler/scheduler_config.json",
        "model_index.json",
    ] {
        assert_eq!(std::fs::read(path.join(needed)).unwrap(), files[needed], "{needed}");
    }
    for skipped in [
        "README.md",
        "v1-5-pruned.ckpt",
        "v1-5-pruned.safetensors",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "text_encoder/pytorch_model.bin",
    ] {
        assert!(!path.join(skipped).exists(), "{skipped}");
    }
    assert!(seen.contains(&(unet.to_owned(), 200_000, 200_000)));
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.authorization == "Bearer hf_secret"));
    assert_eq!(server.resolve().unwrap(), path);
    assert_eq!(server.requests().len(), requests.len(), "the second time needs no request");
    let offline = Hub { offline: true, endpoint: "http://127.0.0.1:1".to_owned(), ..server.hub() };
    assert_eq!(offline.resolve("some/model", &mut |_| {}).unwrap(), path);
}

#[test]
fn a_transfer_that_breaks_off_is_continued() {
    let name = "unet/diffusion_pytorch_model.safetensors";
    let site = Site { cut: Some((name.to_owned(), 150_000)), ..diffusers_site() };
    let content = site.files[name].clone();
    let server = site.start();
    let path = server.resolve().unwrap();
    assert_eq!(std::fs::read(path.join(name)).unwrap(), content);
    let resumed = |r: &Request| r.path.ends_with(name) && r.range.strip_prefix("bytes=").is_some_and(|r| !r.starts_with("0-"));
    assert!(server.requests().iter().any(resumed), "the second attempt starts where the first ended");
}

#[test]
fn an_interrupted_download_is_not_mistaken_for_a_model() {
    let mut site = diffusers_site();
    site.files.remove("vae/diffusion_pytorch_model.safetensors");
    site.listed.push("vae/diffusion_pytorch_model.safetensors".to_owned());
    let server = site.start();
    assert!(server.error().contains("vae/diffusion_pytorch_model.safetensors"));
    let offline = Hub { offline: true, ..server.hub() };
    let error = offline.resolve("some/model", &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE") && error.contains("never downloaded"), "{error}");
}

#[test]
fn names_from_the_server_never_leave_the_model_folder() {
    let outside = |server: &Server| {
        let names: Vec<String> =
            std::fs::read_dir(server.cache.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.iter().all(|name| name == "hub")
    };
    for bad in ["../../x", "/etc/x", "unet/../../../x.safetensors", "a\\..\\x", "C:x", "unet//x", "."] {
        let server = Site { listed: vec![bad.to_owned()], ..diffusers_site() }.start();
        let error = server.error();
        assert!(error.contains("would leave the model's folder") && outside(&server), "{bad}: {error}");
    }
    let server = Site { sha: Some("../../x".to_owned()), ..diffusers_site() }.start();
    assert!(server.error().contains("no commit id") && outside(&server));
    let server = Site { commit_header: Some("../../../../x".to_owned()), ..diffusers_site() }.start();
    assert!(server.error().contains("instead of") && outside(&server));
    let server = Site { etag_header: Some("../../../../x".to_owned()), ..diffusers_site() }.start();
    assert!(server.error().contains("no content hash") && outside(&server));
}

#[test]
fn content_that_differs_from_its_hash_is_removed() {
    let server = Site { etag_header: Some("ab".repeat(32)), ..diffusers_site() }.start();
    assert!(server.error().contains("doesn't match its hash"));
    let snapshot = server.hub().cache.join("models--some--model/snapshots").join(COMMIT);
    assert!(!snapshot.join("model_index.json").exists());
}

#[test]
fn what_the_server_refuses_is_said_in_one_sentence() {
    let error = |status, token: Option<&str>| {
        let server = Site { status: Some(status), ..Site::default() }.start();
        let hub = Hub { token: token.map(str::to_owned), ..server.hub() };
        format!("{:#}", hub.resolve("some/model", &mut |_| {}).unwrap_err())
    };
    assert!(error(404, None).contains("has no model some/model"));
    assert!(error(401, None).contains("accept its licence"));
    assert!(error(403, Some("hf_x")).contains("refuses some/model to the token"));
    assert!(error(500, None).contains("error 500"));
    let nobody = Hub { cache: PathBuf::from("/nowhere"), endpoint: "http://127.0.0.1:1".to_owned(), token: None, offline: false };
    let error = format!("{:#}", nobody.resolve("some/model", &mut |_| {}).unwrap_err());
    assert!(error.contains("can't be reached") && error.contains("check the network") && error.lines().count() == 1, "{error}");
}

#[test]
fn what_looks_like_a_path_is_never_looked_up_in_the_network() {
    let server = diffusers_site().start();
    let dir = tempfile::tempdir().unwrap();
    let existing = dir.path().join("model");
    std::fs::create_dir(&existing).unwrap();
    assert_eq!(server.hub().resolve(existing.to_str().unwrap(), &mut |_| {}).unwrap(), existing);
    for path in [
        "./some/model",
        "../model",
        "/some/model",
        "model.safetensors",
        "models/a.safetensors",
        "a/b/c",
        "C:\\model",
        "src/model",
        "~/model",
        "",
        "some/",
        "a/..",
    ] {
        let error = server.hub().resolve(path, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("doesn't exist"), "{path}: {error}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn repositories_that_cannot_be_used_are_refused_before_anything_large_is_downloaded() {
    let needed = |files: &[&str]| select::needed("o/n", &files.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
    let error = |files: &[&str]| needed(files).unwrap_err().to_string();
    assert_eq!(needed(&["README.md", "a.safetensors"]).unwrap(), ["a.safetensors"]);
    assert!(error(&["a.safetensors", "b.safetensors"]).contains("several checkpoints (a.safetensors, b.safetensors)"));
    assert!(error(&["a.ckpt"]).contains("never unpickled"));
    assert!(error(&["README.md"]).contains("holds no model"));
    assert!(error(&["model_index.json", "text_encoder_2/config.json"]).contains("SDXL"));
    assert!(error(&["model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.bin"]).contains("only the pickle"));
}

#[test]
fn settings_come_from_the_variables_that_huggingface_hub_reads() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), " stored \n").unwrap();
    let dir = home.path().to_str().unwrap();
    let hub = |pairs: &[(&str, &str)]| {
        let map: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Hub::from_variables(&move |name| map.get(name).cloned())
    };
    let plain = hub(&[("HOME", "/home/u")]).unwrap();
    assert_eq!(plain.cache, Path::new("/home/u/.cache/huggingface/hub"));
    assert_eq!((plain.endpoint.as_str(), plain.token, plain.offline), ("https://huggingface.co", None, false));
    let set = hub(&[("HF_HOME", dir), ("HF_ENDPOINT", "https://mirror/"), ("HF_HUB_OFFLINE", "1")]).unwrap();
    assert_eq!((set.cache, set.token.as_deref(), set.offline), (home.path().join("hub"), Some("stored"), true));
    assert_eq!(set.endpoint, "https://mirror");
    let both = hub(&[("HF_HOME", dir), ("HF_HUB_CACHE", "/c"), ("HUGGING_FACE_HUB_TOKEN", "old")]).unwrap();
    assert_eq!((both.cache.to_str(), both.token.as_deref()), (Some("/c"), Some("old")));
    assert_eq!(hub(&[("HF_HOME", dir), ("HF_TOKEN", "new"), ("HUGGING_FACE_HUB_TOKEN", "old")]).unwrap().token.as_deref(), Some("new"));
    assert!(hub(&[]).is_err());
}
