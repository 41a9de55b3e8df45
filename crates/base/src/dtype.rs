//! Element types of tensors, and conversions of whole slices between them.

use crate::Shape;
use crate::quantized::{Layout, Scheme};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// How one element of a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F32,
    BF16,
    F16,
    /// Token ids and random-number counters; never differentiated.
    U32,
    /// Codes of 8-bit optimizer states; stored, never computed with.
    U8,
    /// Blocks of a frozen matrix that share scales; only linear layers and convolutions read them.
    Quantized(Scheme),
}

impl DType {
    /// Bytes of one element. Panics for quantized types, whose elements share bytes: see [`DType::tensor_bytes`].
    #[inline]
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::U8 => 1,
            DType::Quantized(scheme) => panic!("one element of an {} matrix has no bytes of its own", scheme.name()),
        }
    }

    /// Bytes of a tensor, of any type.
    pub fn tensor_bytes(self, shape: &Shape) -> usize {
        match self {
            DType::Quantized(scheme) => Layout::of(scheme, shape).bytes(),
            plain => shape.elements() * plain.bytes(),
        }
    }

    /// What addresses of tensors are multiples of at least.
    pub fn alignment(self) -> usize {
        match self {
            DType::Quantized(_) => DType::BF16.bytes(),
            plain => plain.bytes(),
        }
    }

    /// The name in configs and plans.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Quantized(scheme) => scheme.name(),
        }
    }

    /// Reads the spellings that configs of this field use (`fp32`, `float16`, `bfloat16`, …).
    pub fn parse(name: &str) -> Option<DType> {
        match name {
            "f32" | "fp32" | "float32" | "float" => Some(DType::F32),
            "bf16" | "bfloat16" => Some(DType::BF16),
            "f16" | "fp16" | "float16" | "half" => Some(DType::F16),
            _ => None,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Decodes little-endian float elements; `None` if the length is no multiple of the element or `dtype` is no float.
pub fn to_f32(dtype: DType, bytes: &[u8]) -> Option<Vec<f32>> {
    if matches!(dtype, DType::Quantized(_)) || !bytes.len().is_multiple_of(dtype.bytes()) {
        return None;
    }
    let mut out = vec![0.0; bytes.len() / dtype.bytes()];
    match dtype {
        DType::F32 => out.iter_mut().zip(bytes.chunks_exact(4)).for_each(|(o, b)| *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        DType::BF16 => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        DType::F16 => {
            let halves: Vec<f16> = bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect();
            halves.convert_to_f32_slice(&mut out);
        }
        DType::U32 | DType::U8 | DType::Quantized(_) => return None,
    }
    Some(out)
}

/// Encodes floats as little-endian elements, rounding to nearest even; `None` if `dtype` is no float.
pub fn from_f32(dtype: DType, values: &[f32]) -> Option<Vec<u8>> {
    match dtype {
        DType::F32 => Some(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        DType::BF16 => {
            let mut out = vec![0; values.len() * 2];
            out.chunks_exact_mut(2).zip(values).for_each(|(o, v)| o.copy_from_slice(&bf16::from_f32(*v).to_le_bytes()));
            Some(out)
        }
        DType::F16 => Some(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()),
        DType::U32 | DType::U8 | DType::Quantized(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_types_round_trip_values_they_can_hold() {
        let values = [0.0, -1.5, 0.25, 1024.0, f32::INFINITY];
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let bytes = from_f32(dtype, &values).unwrap();
            assert_eq!(bytes.len(), values.len() * dtype.bytes());
            assert_eq!(to_f32(dtype, &bytes).unwrap(), values);
        }
        assert!(to_f32(DType::F16, &[1, 2, 3]).is_none());
    }
}
