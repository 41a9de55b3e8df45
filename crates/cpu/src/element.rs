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
        // Branch-free too. Below 2⁻¹⁴ adding ½ leaves the units of f16's denormal numbers as the last bits of the sum.
        const HALF: u32 = 126 << 23;
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let denormal = (f32::from_bits(magnitude) + f32::from_bits(HALF)).to_bits().wrapping_sub(HALF);
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        let finite = if magnitude < 113 << 23 { denormal } else { normal };
        // From 65520 on the sum of exponent and mantissa is infinity's already; far beyond it would be more.
        let bounded = if magnitude < 143 << 23 { finite } else { 0x7c00 };
        let rounded = if value.is_nan() { 0x7e00 } else { bounded };
        f16::from_bits(((bits >> 16) & 0x8000 | rounded) as u16)
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

    /// Around every f16: itself, the middle to its neighbour (a tie), and what lies just beside; and numbers beyond its range.
    #[test]
    fn f32_rounds_to_the_nearest_f16_with_ties_to_even_and_beyond_its_range_to_infinity() {
        let beyond = [65504.0, 65519.99, 65520.0, 65536.0, 1e5, f32::MAX, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-40];
        let near = (0..0x7c00u16).flat_map(|bits| {
            let (here, next) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
            let middle = if next.is_finite() { (here + next) / 2.0 } else { 65520.0 };
            [here, middle, middle.next_up(), middle.next_down()]
        });
        for value in near.chain(beyond).flat_map(|v| [v, -v]) {
            let (got, right) = (<f16 as Element>::from_f32(value), f16::from_f32(value));
            assert!(got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan(), "{value:e} became {got:?}, not {right:?}");
            assert_eq!(got.is_sign_negative(), value.is_sign_negative(), "{value:e}");
        }
    }
}
