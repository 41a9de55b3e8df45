//! Writing: the same tensors and metadata give the same bytes, and the file appears whole or not at all.

use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    pub bytes: Cow<'a, [u8]>,
}

/// Writes `entries` and `metadata` under a temporary name, syncs, and renames.
///
/// Order in the file: larger elements first (so that each tensor is aligned to its element), then by name.
pub fn write(path: &Path, entries: &[Entry<'_>], metadata: &BTreeMap<String, String>) -> Result<()> {
    let order = file_order(entries);
    let header = serialize_header(&order, metadata).with_context(|| format!("can't write {}", path.display()))?;
    base::fs::write_atomic_with(path, |out| {
        out.write_all(&header)?;
        order.iter().try_for_each(|entry| out.write_all(&entry.bytes).context("write failed"))
    })
}

/// The order in which [`write`] puts the tensors.
pub(crate) fn file_order<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<&'e Entry<'a>> {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by(|a, b| b.dtype.bytes().cmp(&a.dtype.bytes()).then_with(|| a.name.cmp(&b.name)));
    order
}

/// Length, JSON and padding up to the tensor area, which starts at a multiple of 8 bytes.
pub fn serialize_header(order: &[&Entry<'_>], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut fields = Map::new();
    if !metadata.is_empty() {
        fields.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut offset = 0;
    for entry in order {
        let (name, end) = (&entry.name, offset + entry.bytes.len());
        ensure!(entry.shape.elements() * entry.dtype.bytes() == entry.bytes.len(), "tensor {name} has other bytes than its shape needs");
        let old = fields
            .insert(name.clone(), json!({ "dtype": stored_name(entry.dtype), "shape": entry.shape.dims(), "data_offsets": [offset, end] }));
        ensure!(old.is_none(), "tensor {name} is given twice");
        offset = end;
    }
    let mut header = vec![0; 8];
    serde_json::to_writer(&mut header, &Value::Object(fields)).context("a header of strings and numbers is always JSON")?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = (header.len() - 8) as u64;
    ensure!(length <= super::HEADER_LIMIT, "the header would take {length} bytes, more than readers accept");
    header[..8].copy_from_slice(&length.to_le_bytes());
    Ok(header)
}

fn stored_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::BF16 => "BF16",
        DType::F16 => "F16",
        DType::U32 => "U32",
        DType::U8 => "U8",
        DType::Quantized(_) => unreachable!("files hold plain numbers"),
    }
}
