//! The header: parsed without trust. Each claim is checked before anything is sized by it.

use base::{DType, Shape};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::ops::Range;

/// No real header is near this (SDXL has 0.3 MB); the same limit as the reference implementation.
pub const HEADER_LIMIT: u64 = 100_000_000;

/// The element type of a stored tensor: one that the project computes with, or the name of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Known(DType),
    Other(String),
}

impl Stored {
    fn parse(name: &str) -> Stored {
        match name {
            "F32" => Stored::Known(DType::F32),
            "F16" => Stored::Known(DType::F16),
            "BF16" => Stored::Known(DType::BF16),
            "U32" => Stored::Known(DType::U32),
            "U8" => Stored::Known(DType::U8),
            other => Stored::Other(other.to_owned()),
        }
    }

    /// Bytes per element; `None` for a type that packs several elements into a byte or isn't known at all.
    fn bytes(&self) -> Option<u64> {
        match self {
            Stored::Known(dtype) => Some(dtype.bytes() as u64),
            Stored::Other(name) => match name.as_str() {
                "F64" | "I64" | "U64" | "C64" => Some(8),
                "I32" => Some(4),
                "I16" | "U16" => Some(2),
                "I8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => Some(1),
                _ => None,
            },
        }
    }
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stored::Known(dtype) => write!(f, "{dtype}"),
            Stored::Other(name) => f.write_str(name),
        }
    }
}

/// What the header says of one tensor; `range` is checked to lie inside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub dtype: Stored,
    pub shape: Shape,
    /// Byte positions in the file.
    pub range: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub tensors: BTreeMap<String, TensorInfo>,
    pub metadata: BTreeMap<String, String>,
    pub data_start: usize,
}

/// Reads and checks the header of a whole file's bytes. The error is the end of a sentence about the file.
pub(super) fn parse(file: &[u8]) -> Result<Parsed, String> {
    let present = file.len() as u64;
    let Some(length) = file.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)) else {
        return Err(format!("it has {present} bytes, and the header's length alone takes 8"));
    };
    if length > HEADER_LIMIT {
        return Err(format!("its first 8 bytes claim a header of {length} bytes, and at most {HEADER_LIMIT} are allowed"));
    }
    if length + 8 > present {
        return Err(format!("it is cut short inside its header: {} bytes expected at least, {present} present", length + 8));
    }
    let data_start = 8 + length as usize;
    let raw: RawHeader =
        serde_json::from_slice(&file[8..data_start]).map_err(|e| format!("its header is not the JSON that it should be ({e})"))?;
    let mut tensors = BTreeMap::new();
    for (name, info) in raw.tensors {
        let info = check_tensor(&name, info, data_start)?;
        tensors.insert(name, info);
    }
    check_coverage(&tensors, data_start, file.len())?;
    Ok(Parsed { tensors, metadata: raw.metadata, data_start })
}

/// Shape, element type and byte range must agree. The range is not yet compared with the file's length.
fn check_tensor(name: &str, raw: RawTensor, data_start: usize) -> Result<TensorInfo, String> {
    let [begin, end] = raw.data_offsets;
    let position = |offset: u64| usize::try_from(offset).ok().and_then(|o| o.checked_add(data_start));
    let (Some(begin_at), Some(end_at)) = (position(begin), position(end)) else {
        return Err(format!("tensor {name} lies at the impossible offset {end}"));
    };
    if begin > end {
        return Err(format!("tensor {name} ends (offset {end}) before it begins (offset {begin})"));
    }
    let dtype = Stored::parse(&raw.dtype);
    let elements = raw.shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let dims: Option<Vec<usize>> = raw.shape.iter().map(|dim| usize::try_from(*dim).ok()).collect();
    let (Some(elements), Some(dims)) = (elements, dims) else {
        return Err(format!("tensor {name} has the impossible shape {:?}", raw.shape));
    };
    if let Some(size) = dtype.bytes()
        && elements.checked_mul(size) != Some(end - begin)
    {
        return Err(format!("tensor {name} ({dtype}, shape {:?}) can't be the {} bytes that the header gives it", raw.shape, end - begin));
    }
    Ok(TensorInfo { dtype, shape: Shape(dims), range: begin_at..end_at })
}

/// The tensors must tile the data area: nothing outside the file, no overlap, no hole, no trailing bytes.
fn check_coverage(tensors: &BTreeMap<String, TensorInfo>, data_start: usize, present: usize) -> Result<(), String> {
    let expected = tensors.values().map(|info| info.range.end).max().unwrap_or(data_start);
    if expected > present {
        return Err(format!(
            "it is cut short: {expected} bytes expected, {present} present ({} missing); download or copy it again",
            base::human((expected - present) as u64)
        ));
    }
    let mut order: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
    order.sort_by_key(|(_, info)| (info.range.start, info.range.end));
    let mut at = data_start;
    let mut previous = "the header";
    for (name, info) in order {
        if info.range.start < at {
            return Err(format!("tensors {previous} and {name} overlap"));
        }
        if info.range.start > at {
            return Err(format!("{} bytes before tensor {name} belong to no tensor", info.range.start - at));
        }
        (at, previous) = (info.range.end, name);
    }
    if at < present {
        return Err(format!("{} bytes after its last tensor belong to no tensor", present - at));
    }
    Ok(())
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header's entries. A name that comes twice is an error: two readers could see different tensors.
#[derive(Default)]
struct RawHeader {
    tensors: BTreeMap<String, RawTensor>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawHeader, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut header = RawHeader::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else if header.tensors.insert(name.clone(), map.next_value()?).is_some() {
                        return Err(serde::de::Error::custom(format!("tensor {name} is listed twice")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
