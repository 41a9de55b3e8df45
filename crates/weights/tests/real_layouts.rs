//! Checkpoints with the names and shapes of the real SD 1.5 and SD 2.1 single files, at full size: as sparse files, which
//! take no space, since opening reads headers only.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests; helpers outside #[test] functions count as code for clippy")]

use base::{DType, Shape};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use velatura_weights::{Checkpoint, Family};

fn shape(text: &str) -> Shape {
    if text == "scalar" { Shape::new(&[]) } else { Shape(text.split('x').map(|n| n.parse().unwrap()).collect()) }
}

fn name_and_shape(text: &str) -> (String, Shape) {
    let (name, dims) = text.split_once(' ').unwrap();
    (name.to_owned(), shape(dims))
}

/// A file whose header lists `tensors` as halves and whose data area is a hole.
fn write_sparse(path: &Path, tensors: &[(String, Shape)]) {
    let mut header = serde_json::Map::new();
    let mut offset = 0;
    for (name, shape) in tensors {
        let end = offset + 2 * shape.elements();
        header.insert(name.clone(), json!({ "dtype": "F16", "shape": shape.dims(), "data_offsets": [offset, end] }));
        offset = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&header).unwrap();
    file.set_len((8 + header.len() + offset) as u64).unwrap();
}

fn check(list: &str, family: Family) {
    let (mut original, mut canonical) = (Vec::new(), BTreeMap::new());
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (source, ours) = line.split_once(" = ").unwrap();
        original.push(name_and_shape(source));
        canonical.extend(ours.split(" + ").filter(|ours| *ours != "-").map(name_and_shape));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    write_sparse(&path, &original);
    let model = Checkpoint::open(&path).unwrap();
    assert_eq!(model.family(), family);
    model.ensure_supported().unwrap();
    assert!(model.unused().is_empty(), "{:?}", model.unused());
    assert_eq!(model.names().collect::<Vec<_>>(), canonical.keys().collect::<Vec<_>>());
    for (name, shape) in &canonical {
        assert_eq!(model.info(name), Some((DType::F16, shape.clone())), "{name}");
    }
    let q = model.tensor("text_encoder.text_model.encoder.layers.0.self_attn.q_proj.weight").unwrap();
    assert_eq!(q.bytes.len(), 2 * q.shape.elements());
}

#[test]
fn sd15_single_file_gives_exactly_the_diffusers_tensors() {
    check(include_str!("key_lists/sd15.txt"), Family::Sd1);
}

#[test]
fn sd21_single_file_gives_exactly_the_diffusers_tensors() {
    check(include_str!("key_lists/sd21.txt"), Family::Sd2);
}
