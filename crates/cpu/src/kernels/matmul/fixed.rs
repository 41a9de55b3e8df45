//! Block fixed point: what the units of rows and columns are.
//!
//! Integers in a unit have a Euclidean norm of at most 2¹⁵, so a sum of products of two of them is at most 2³⁰ (Cauchy–Schwarz) and exact
//! in 32 bits. Units are powers of two: a bf16 becomes an integer without rounding unless it is below 2⁻⁷ of the norm or so.

/// Largest norm in units: rounding adds at most half a unit a number, and a block of the reduction has less than 512.
pub const NORM: f32 = 32_700.0;

/// Smallest unit: its inverse still is a float.
pub const LEAST_UNIT: f32 = 1e-36;

/// The unit for numbers of at most this norm; a NaN if it is not finite.
pub fn unit(norm: f32) -> f32 {
    if norm.is_nan() || norm == f32::INFINITY {
        return f32::NAN;
    }
    let least = (norm / NORM).max(LEAST_UNIT);
    f32::from_bits((least.to_bits() + 0x007f_ffff) & 0x7f80_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_next_powers_of_two() {
        assert_eq!((unit(NORM), unit(NORM * 1.01), unit(NORM * 0.5)), (1.0, 2.0, 0.5));
        assert!(unit(0.0) > 0.0 && (1.0 / unit(0.0)).is_finite());
        assert!(unit(f32::NAN).is_nan() && unit(f32::INFINITY).is_nan());
    }
}
