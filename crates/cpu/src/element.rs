//! Element types that kernels are generic over.

use base::DType;
use half::{bf16, f16};

/// A stored element: how it widens to f32 and rounds from it (to nearest even).
pub trait Element: Copy + Send + Sync + 'static {
    const DTYPE: DType;
    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        let bits = value.to_bits();
        // Branch-free, so that loops vectorise; a NaN keeps a set bit in what remains of its mantissa.
        let rounded = (bits.wrapping_add(0x7fff).wrapping_add((bits >> 16) & 1)) >> 16;
        let nan = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
    }
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        // Branch-free, so that loops vectorise: exponents move up by 112, denormal numbers too, and the largest becomes the largest.
        let bits = u32::from(self.to_bits());
        let magnitude = (f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
        let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        f32::from_bits((bits & 0x8000) << 16 | magnitude | special)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;

    fn to_f32(self) -> f32 {
        self as f32
    }

    fn from_f32(value: f32) -> u32 {
        value as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let number = f16::from_bits(bits);
            let (got, right) = (Element::to_f32(number), f16::to_f32(number));
            assert!(got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan(), "{bits:#06x} became {got}, not {right}");
        }
    }
}
