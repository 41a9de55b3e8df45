use super::*;
use base::Rng;
use std::borrow::Cow;

fn entry(name: &str, dtype: DType, shape: &[usize], fill: u8) -> Entry<'static> {
    let shape = Shape::new(shape);
    let bytes = vec![fill; shape.elements() * dtype.bytes()];
    Entry { name: name.to_owned(), dtype, shape, bytes: Cow::Owned(bytes) }
}

fn open_bytes(name: &str, bytes: &[u8]) -> Result<File> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    File::open(&path)
}

fn refusal(name: &str, bytes: &[u8]) -> String {
    let error = format!("{:#}", open_bytes(name, bytes).unwrap_err());
    assert!(error.contains(name) && error.lines().count() == 1, "{error}");
    error
}

fn with_header(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data, 1);
    bytes
}

/// A valid file of a few tensors, for the tests that damage it.
fn sound_file() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let entries = [entry("b", DType::F16, &[3], 1), entry("a", DType::F32, &[2, 2], 2), entry("c", DType::BF16, &[], 3)];
    write(&path, &entries, &BTreeMap::from([("who".to_owned(), "test".to_owned())])).unwrap();
    std::fs::read(&path).unwrap()
}

#[test]
fn what_is_written_is_read_and_the_same_input_gives_the_same_bytes() {
    let bytes = sound_file();
    assert_eq!(bytes, sound_file());
    let file = open_bytes("a.safetensors", &bytes).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(file.metadata()["who"], "test");
    let a = file.tensor("a").unwrap();
    assert_eq!((a.dtype, a.shape, a.bytes), (DType::F32, Shape::from([2, 2]), &[2u8; 16][..]));
    assert_eq!(file.info("c").unwrap().shape, Shape::new(&[]));
    assert_eq!(file.data_start % 8, 0);
    assert_eq!(file.info("a").unwrap().range.start, file.data_start, "the widest elements come first");
    // Pages that were given back come again as they were; a slice of something else is not the file's to give.
    for part in [file.tensor("a").unwrap().bytes, file.tensor_area(), &[0; 100]] {
        file.release_part(part);
        assert_eq!(file.tensor("b").unwrap().bytes, [1; 6]);
    }
    let missing = file.tensor("aa").unwrap_err().to_string();
    assert!(missing.contains("no tensor aa") && missing.contains("a.safetensors"), "{missing}");
}

#[test]
fn files_of_other_kinds_are_refused_by_what_they_are() {
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4265146304\n";
    assert!(refusal("m.safetensors", lfs.as_bytes()).contains("git-lfs pointer, not the file itself of 4.3 GB"));
    assert!(refusal("m.safetensors", b"\n<!DOCTYPE html><html>").contains("web page"));
    let zip = refusal("m.ckpt", b"PK\x03\x04\x00\x00\x00\x00archive/data.pkl");
    assert!(zip.contains("never unpickled") && zip.contains("convert it to safetensors"), "{zip}");
    assert!(refusal("m.safetensors", b"\x80\x02}q\x00(X\x04\x00\x00\x00").contains("never unpickled"));
    assert!(refusal("m.bin", b"something that nobody knows").contains("never unpickled"));
    assert!(refusal("m.gguf", b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00").contains("GGUF"));
    assert!(refusal("m.safetensors", b"").contains("empty"));
    assert!(refusal("m.safetensors", b"{\"weight_map\": {}}").contains("JSON"));
    assert!(refusal("m.safetensors", b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d").contains("PNG picture"));
    assert!(refusal("m.safetensors", b"\xff\xd8\xff\xe0\x00\x10JFIF").contains("JPEG picture"));
    assert!(refusal("m.safetensors", &[0; 100]).contains("only zeros"));
    assert!(refusal("m.safetensors", b"abc").contains("3 bytes"));
}

#[test]
fn a_cut_file_says_how_many_bytes_are_missing() {
    let bytes = sound_file();
    let error = refusal("m.safetensors", &bytes[..bytes.len() - 5]);
    assert!(error.contains(&format!("{} bytes expected, {} present", bytes.len(), bytes.len() - 5)), "{error}");
    let error = refusal("m.safetensors", &bytes[..20]);
    assert!(error.contains("cut short inside its header"), "{error}");
}

#[test]
fn lying_headers_are_refused() {
    let cases = [
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, 12, "overlap"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, 12, "belong to no tensor"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 9, "belong to no tensor"),
        (r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8, "can't be the 8 bytes"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8, "before it begins"),
        (r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}}"#, 8, "impossible shape"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}}"#, 8, "impossible offset"),
        (r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#, 8, "not the JSON"),
        (r#"{"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}}"#, 8, "not the JSON"),
        (
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            8,
            "listed twice",
        ),
        (r#"{"__metadata__":{"a":1}}"#, 0, "not the JSON"),
        (r#"{"a":"#, 0, "not the JSON"),
        ("\u{1}", 0, "not the JSON"),
    ];
    for (json, data, expected) in cases {
        let error = refusal("m.safetensors", &with_header(json, data));
        assert!(error.contains(expected), "{json} gave: {error}");
    }
    let nested = with_header(&"[".repeat(100_000), 0);
    assert!(refusal("m.safetensors", &nested).contains("not the JSON"));
    let mut huge = sound_file();
    huge[..8].copy_from_slice(&(HEADER_LIMIT + 1).to_le_bytes());
    assert!(refusal("m.safetensors", &huge).contains("at most 100000000 are allowed"));
}

#[test]
fn other_element_types_are_listed_and_refused_only_when_asked_for() {
    let json = r#"{"ids":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]},"w":{"dtype":"F16","shape":[2],"data_offsets":[16,20]}}"#;
    let file = open_bytes("m.safetensors", &with_header(json, 20)).unwrap();
    assert_eq!(file.names().count(), 2);
    assert_eq!(file.tensor("w").unwrap().shape, Shape::from([2]));
    let error = file.tensor("ids").unwrap_err().to_string();
    assert!(error.contains("tensor ids") && error.contains("I64"), "{error}");
}

/// Flips bytes, cuts and stretches a sound file in thousands of ways: each is read or refused, none panics or reads outside.
#[test]
fn damaged_files_never_panic() {
    let sound = sound_file();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    let seed = 20;
    let mut rng = Rng::new(seed, "damage", &[]);
    for round in 0..1500 {
        let mut bytes = sound.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] = rng.next_u32() as u8,
                1 => bytes[at] = b"0123456789[]{},:\""[rng.below(17) as usize],
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.next_u32() as u8),
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(file) = File::open(&path) {
            let read: usize = file.names().filter_map(|name| file.tensor(name).ok()).map(|t| t.bytes.len()).sum();
            assert!(read <= bytes.len(), "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_convolution_weight_moves_its_channels_last() {
    let values: Vec<f32> = (0..2 * 3 * 2 * 2).map(|v| v as f32).collect();
    let bytes = base::dtype::from_f32(DType::F32, &values).unwrap();
    let tensor = Tensor { dtype: DType::F32, shape: Shape::from([2, 3, 2, 2]), bytes: &bytes };
    let moved = base::dtype::to_f32(DType::F32, &tensor.to_channels_last()).unwrap();
    let rows: Vec<f32> = (0..tensor.shape.batch()).flat_map(|row| tensor.row(row).unwrap()).collect();
    assert_eq!(rows, moved, "row by row it is the same");
    assert!(tensor.row(tensor.shape.batch()).is_none());
    assert_eq!(moved[..6], [0.0, 4.0, 8.0, 1.0, 5.0, 9.0]);
    assert_eq!(moved[12..15], [12.0, 16.0, 20.0]);
}
