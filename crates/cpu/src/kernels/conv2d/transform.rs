//! The transforms of Winograd's F(4×4, 3×3), with the points 0, ±1, ±2 and ∞: Bᵀ d B of inputs, G g Gᵀ of weights, Aᵀ m A of products.
//! Each goes over columns, then rows, of many tiles side by side. Written in vectors, since compilers unroll such loops into scalars.

use crate::isa::{Isa, vectorize};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Side of the outputs and of the inputs of a tile, and the products of one.
pub const OUT: usize = 4;
pub const IN: usize = 6;
pub const PRODUCTS: usize = IN * IN;
/// Taps along a side of the kernel.
const KERNEL: usize = 3;

/// Numbers that stand `plane` apart, many of them side by side.
#[derive(Clone, Copy)]
pub struct Planes {
    pub at: *mut f32,
    pub plane: usize,
}

/// Numbers that are worked on together. Methods must be inlined into a function that has the features.
trait Vector: Copy {
    const LANES: usize;

    /// # Safety
    /// The machine has the instructions, and `from` that many numbers.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// The machine has the instructions, and `to` takes that many numbers.
    unsafe fn store(self, to: *mut f32);

    /// `factor · self`.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn times(self, factor: f32) -> Self;

    /// `self + factor · other`.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn plus(self, factor: f32, other: Self) -> Self;
}

impl Vector for f32 {
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { from.read() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { to.write(self) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: f32) -> f32 {
        factor * self
    }

    #[inline(always)]
    unsafe fn plus(self, factor: f32, other: f32) -> f32 {
        self + factor * other
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($type:ident, $lanes:literal, $load:ident, $store:ident, $splat:ident, $multiply:ident, $multiply_add:ident) => {
        impl Vector for $type {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as the caller promises.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as the caller promises.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn times(self, factor: f32) -> Self {
                // SAFETY: as the caller promises.
                unsafe { $multiply($splat(factor), self) }
            }

            #[inline(always)]
            unsafe fn plus(self, factor: f32, other: Self) -> Self {
                // SAFETY: as the caller promises.
                unsafe { $multiply_add($splat(factor), other, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(__m256, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_mul_ps, _mm256_fmadd_ps);
#[cfg(target_arch = "x86_64")]
vector!(__m512, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_mul_ps, _mm512_fmadd_ps);

/// What a transform does with a line of `FROM` numbers.
trait Line<const FROM: usize, const TO: usize> {
    /// # Safety
    /// As [`Vector`]'s.
    unsafe fn apply<V: Vector>(line: [V; FROM]) -> [V; TO];
}

/// Bᵀ d.
struct Inputs;

impl Line<IN, IN> for Inputs {
    #[inline(always)]
    unsafe fn apply<V: Vector>(d: [V; IN]) -> [V; IN] {
        // SAFETY: as the caller promises.
        unsafe {
            let (even, odd) = (d[4].plus(-4.0, d[2]), d[3].plus(-4.0, d[1]));
            let (near, far) = (d[4].plus(-1.0, d[2]), d[3].plus(-1.0, d[1]));
            [
                d[4].plus(4.0, d[0]).plus(-5.0, d[2]),
                even.plus(1.0, odd),
                even.plus(-1.0, odd),
                near.plus(2.0, far),
                near.plus(-2.0, far),
                d[5].plus(4.0, d[1]).plus(-5.0, d[3]),
            ]
        }
    }
}

/// G g.
struct Weights;

impl Line<KERNEL, IN> for Weights {
    #[inline(always)]
    unsafe fn apply<V: Vector>(g: [V; KERNEL]) -> [V; IN] {
        // SAFETY: as the caller promises.
        unsafe {
            let near = g[0].plus(1.0, g[2]).times(-1.0 / 6.0);
            let far = g[0].times(1.0 / 24.0).plus(1.0 / 6.0, g[2]);
            [
                g[0].times(0.25),
                near.plus(-1.0 / 6.0, g[1]),
                near.plus(1.0 / 6.0, g[1]),
                far.plus(1.0 / 12.0, g[1]),
                far.plus(-1.0 / 12.0, g[1]),
                g[2],
            ]
        }
    }
}

/// Aᵀ m.
struct Outputs;

impl Line<IN, OUT> for Outputs {
    #[inline(always)]
    unsafe fn apply<V: Vector>(m: [V; IN]) -> [V; OUT] {
        // SAFETY: as the caller promises.
        unsafe {
            let (even, odd) = (m[1].plus(1.0, m[2]), m[1].plus(-1.0, m[2]));
            let (far_even, far_odd) = (m[3].plus(1.0, m[4]), m[3].plus(-1.0, m[4]));
            [
                m[0].plus(1.0, even).plus(1.0, far_even),
                odd.plus(2.0, far_odd),
                even.plus(4.0, far_even),
                m[5].plus(1.0, odd).plus(8.0, far_odd),
            ]
        }
    }
}

/// Transforms columns, then rows, of `FROM` × `FROM` planes, which makes `TO` × `TO`.
///
/// # Safety
/// The machine has the vector's instructions; planes hold `count` numbers, rounded up to vectors.
#[inline(always)]
unsafe fn both_ways<V: Vector, L: Line<FROM, TO>, const FROM: usize, const TO: usize>(from: Planes, into: Planes, count: usize) {
    for c in (0..count).step_by(V::LANES) {
        // SAFETY: as the caller promises.
        unsafe {
            let first = V::load(from.at.add(c));
            let mut columns = [[first; TO]; FROM];
            for (j, transformed) in columns.iter_mut().enumerate() {
                let mut column = [first; FROM];
                for (i, number) in column.iter_mut().enumerate() {
                    *number = V::load(from.at.add((i * FROM + j) * from.plane + c));
                }
                *transformed = L::apply(column);
            }
            for i in 0..TO {
                let mut row = [first; FROM];
                for (number, column) in row.iter_mut().zip(columns) {
                    *number = column[i];
                }
                for (j, number) in L::apply(row).into_iter().enumerate() {
                    number.store(into.at.add((i * TO + j) * into.plane + c));
                }
            }
        }
    }
}

/// The transform of a kind of line, in vectors of the widest kind.
macro_rules! transform {
    ($(#[$doc:meta])* $name:ident, $line:ident, $from:ident, $to:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Planes hold `count` numbers, rounded up to vectors of 16; the machine has `isa`.
        pub unsafe fn $name(isa: Isa, from: Planes, into: Planes, count: usize) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            unsafe fn avx512(from: Planes, into: Planes, count: usize) {
                // SAFETY: as the caller promises.
                unsafe { both_ways::<__m512, $line, $from, $to>(from, into, count) }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2(from: Planes, into: Planes, count: usize) {
                // SAFETY: as the caller promises.
                unsafe { both_ways::<__m256, $line, $from, $to>(from, into, count) }
            }

            // SAFETY: as the caller promises.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    isa if isa >= Isa::Avx512 => avx512(from, into, count),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => avx2(from, into, count),
                    _ => both_ways::<f32, $line, $from, $to>(from, into, count),
                }
            }
        }
    };
}

transform!(
    /// Bᵀ d B: 36 planes to 36.
    input_transform, Inputs, IN, IN
);
transform!(
    /// G g Gᵀ: 9 planes to 36.
    weight_transform, Weights, KERNEL, IN
);
transform!(
    /// Aᵀ m A: 36 planes to 16.
    output_transform, Outputs, IN, OUT
);

vectorize! {
    /// Whether there is neither an infinity nor a NaN.
    pub fn all_finite(numbers: &[f32]) -> bool {
        const EXPONENT: u32 = 0x7f80_0000;
        let mut others = 0;
        for number in numbers {
            others |= u32::from(number.to_bits() & EXPONENT == EXPONENT);
        }
        others == 0
    }
}
