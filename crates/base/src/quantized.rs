//! Frozen matrices in fewer bits: 64 numbers that follow each other in a row share a scale, and each is a code of 8 or 4 bits.
//!
//! A tensor [rows, …] counts as the matrix of its first axis by all others together: for a layer that is the reduction of its forward.
//! Its bytes are the codes row by row, then the scales row by row: one bf16 a block, whose range is f32's, so no weight is too small or
//! too large. A row's last block may be short, and a row with an odd number of 4-bit codes ends with half a byte that is not used; the
//! even columns' codes are the lower halves.

use crate::Shape;
use half::bf16;

/// Numbers that share a scale.
pub const BLOCK: usize = 64;

/// What a code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// A whole number from −127 to 127 times the scale, which is the block's largest magnitude / 127.
    Int8,
    /// An entry of [`NF4`] times the block's largest magnitude.
    Nf4,
}

/// The 16 levels of "4-bit NormalFloat": quantiles of a normal distribution scaled to [−1, 1], with an exact zero
/// (Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023, appendix E).
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Halfway from each level to the next: a number belongs to the level whose index is the count of these below it.
const NF4_BOUNDS: [f32; 15] = {
    let mut bounds = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        bounds[i] = (NF4[i] + NF4[i + 1]) / 2.0;
        i += 1;
    }
    bounds
};

impl Scheme {
    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Int8 => "int8",
            Scheme::Nf4 => "nf4",
        }
    }

    fn bits(self) -> usize {
        match self {
            Scheme::Int8 => 8,
            Scheme::Nf4 => 4,
        }
    }

    /// The code `code` means this many scales.
    fn level(self, code: u8) -> f32 {
        match self {
            Scheme::Int8 => f32::from(code as i8),
            Scheme::Nf4 => NF4[usize::from(code & 15)],
        }
    }
}

/// Where the codes and scales of a matrix stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub scheme: Scheme,
    pub rows: usize,
    pub columns: usize,
}

/// A number that no scale can hold: infinite, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite {
    pub row: usize,
    pub column: usize,
}

impl Layout {
    /// Of a tensor with these axes.
    pub fn of(scheme: Scheme, shape: &Shape) -> Layout {
        Layout { scheme, rows: shape.batch(), columns: shape.elements() / shape.batch().max(1) }
    }

    /// Bytes of a row's codes.
    pub fn row_bytes(&self) -> usize {
        (self.columns * self.scheme.bits()).div_ceil(8)
    }

    /// Scales of a row.
    pub fn row_blocks(&self) -> usize {
        self.columns.div_ceil(BLOCK)
    }

    /// The first byte of the scales.
    pub fn scales_at(&self) -> usize {
        (self.rows * self.row_bytes()).next_multiple_of(2)
    }

    /// Bytes of the whole matrix.
    pub fn bytes(&self) -> usize {
        self.scales_at() + self.rows * self.row_blocks() * 2
    }

    /// Splits a matrix's bytes into codes and scales.
    pub fn split_mut<'a>(&self, bytes: &'a mut [u8]) -> (&'a mut [u8], &'a mut [u8]) {
        let (codes, scales) = bytes.split_at_mut(self.scales_at());
        (&mut codes[..self.rows * self.row_bytes()], scales)
    }

    /// Writes the codes and scales of one row; the error is the first column that is not finite.
    pub fn quantize_row(&self, numbers: &[f32], codes: &mut [u8], scales: &mut [u8]) -> Result<(), usize> {
        assert_eq!(numbers.len(), self.columns, "a row of another matrix");
        let blocks = numbers.chunks(BLOCK).zip(scales.chunks_exact_mut(2)).zip(codes.chunks_mut(BLOCK * self.scheme.bits() / 8));
        for (i, ((numbers, scale), codes)) in blocks.enumerate() {
            let unit = quantize_block(self.scheme, numbers, codes).map_err(|at| i * BLOCK + at)?;
            scale.copy_from_slice(&unit.to_le_bytes());
        }
        Ok(())
    }

    /// All rows of a matrix.
    pub fn quantize(&self, numbers: &[f32]) -> Result<Vec<u8>, NotFinite> {
        let mut bytes = vec![0; self.bytes()];
        let (codes, scales) = self.split_mut(&mut bytes);
        for row in 0..self.rows {
            let codes = &mut codes[row * self.row_bytes()..][..self.row_bytes()];
            let scales = &mut scales[row * self.row_blocks() * 2..][..self.row_blocks() * 2];
            let numbers = &numbers[row * self.columns..][..self.columns];
            self.quantize_row(numbers, codes, scales).map_err(|column| NotFinite { row, column })?;
        }
        Ok(bytes)
    }

    /// The numbers that a matrix's bytes stand for, one obvious formula each.
    pub fn dequantize(&self, bytes: &[u8]) -> Vec<f32> {
        let number = |row: usize, column: usize| {
            let byte = bytes[row * self.row_bytes() + column * self.scheme.bits() / 8];
            let code = if self.scheme == Scheme::Nf4 && column % 2 == 1 { byte >> 4 } else { byte };
            let scale = self.scales_at() + (row * self.row_blocks() + column / BLOCK) * 2;
            self.scheme.level(code) * bf16::from_le_bytes([bytes[scale], bytes[scale + 1]]).to_f32()
        };
        (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column))).map(|(r, c)| number(r, c)).collect()
    }
}

/// Writes the codes of a block and returns its scale; the error is the index of the first number that is not finite.
fn quantize_block(scheme: Scheme, numbers: &[f32], codes: &mut [u8]) -> Result<bf16, usize> {
    const INFINITY: u32 = 0x7f80_0000;
    let largest = numbers.iter().fold(0, |most, number| most.max(number.to_bits() & !(1 << 31)));
    if largest >= INFINITY {
        return Err(numbers.iter().position(|number| !number.is_finite()).unwrap_or(0));
    }
    let largest = f32::from_bits(largest);
    let step = if scheme == Scheme::Int8 { largest / 127.0 } else { largest };
    // A block of zeros has codes that mean 0, whatever its scale.
    let scale = bf16::from_f32(step.clamp(f32::MIN_POSITIVE, bf16::MAX.to_f32()));
    let unit = scale.to_f32();
    match scheme {
        Scheme::Int8 => codes.iter_mut().zip(numbers).for_each(|(code, number)| *code = nearest_whole(number / unit)),
        Scheme::Nf4 => {
            let mut levels = [0u8; BLOCK];
            levels.iter_mut().zip(numbers).for_each(|(level, number)| *level = nearest_level(number / unit));
            codes.iter_mut().zip(levels.chunks_exact(2)).for_each(|(code, pair)| *code = pair[0] | pair[1] << 4);
        }
    }
    Ok(scale)
}

/// The nearest whole number from −127 to 127 as a byte, ties to even. Adding 1.5 · 2²³ leaves no bits for a fraction, and vectorises on
/// every machine.
#[inline(always)]
fn nearest_whole(number: f32) -> u8 {
    (number + 12_582_912.0).to_bits() as u8
}

#[inline(always)]
fn nearest_level(number: f32) -> u8 {
    NF4_BOUNDS.iter().map(|bound| u8::from(number > *bound)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const SCHEMES: [Scheme; 2] = [Scheme::Int8, Scheme::Nf4];

    fn normal(count: usize, spread: f32) -> Vec<f32> {
        let mut rng = Rng::new(3, "quantized", &[]);
        (0..count).map(|_| rng.normal() * spread).collect()
    }

    /// Half of the widest gap between neighbouring levels.
    fn half_gap(scheme: Scheme) -> f32 {
        if scheme == Scheme::Int8 { 0.5 } else { (NF4[1] - NF4[0]) / 2.0 }
    }

    #[test]
    fn every_number_is_at_most_half_a_step_off() {
        for scheme in SCHEMES {
            for (columns, spread) in [(64, 1.0), (200, 0.02), (1, 3.0), (63, 1e-38), (130, 1e37), (65, 1e-44)] {
                let layout = Layout { scheme, rows: 5, columns };
                let numbers = normal(5 * columns, spread);
                let bytes = layout.quantize(&numbers).unwrap();
                assert_eq!(bytes.len(), layout.bytes());
                for (i, (was, is)) in numbers.iter().zip(layout.dequantize(&bytes)).enumerate() {
                    let block = i / columns * columns + i % columns / BLOCK * BLOCK;
                    let block = &numbers[block..(block + BLOCK).min((i / columns + 1) * columns)];
                    let largest = block.iter().fold(0.0f32, |most, n| most.max(n.abs()));
                    let step = if scheme == Scheme::Int8 { largest / 127.0 } else { largest };
                    // The scale itself is rounded to bf16: 2⁻⁹ at most.
                    let step = step.max(f32::MIN_POSITIVE) * (1.0 + 1.0 / 512.0);
                    assert!((was - is).abs() <= step * half_gap(scheme), "{scheme:?} {columns} {spread}: {was} became {is}, step {step}");
                }
            }
        }
    }

    #[test]
    fn what_was_quantized_once_stays_as_it_is() {
        for scheme in SCHEMES {
            for spread in [1.0, 1e-38, 1e37, 3e-42] {
                let layout = Layout { scheme, rows: 3, columns: 171 };
                let bytes = layout.quantize(&normal(3 * 171, spread)).unwrap();
                assert!(layout.quantize(&layout.dequantize(&bytes)).unwrap() == bytes, "{scheme:?} {spread}");
            }
        }
    }

    #[test]
    fn a_block_of_zeros_stays_zero() {
        for scheme in SCHEMES {
            let layout = Layout { scheme, rows: 2, columns: 70 };
            let mut numbers = vec![0.0; 140];
            numbers[69] = -127.0;
            assert_eq!(layout.dequantize(&layout.quantize(&numbers).unwrap()), numbers, "{scheme:?}");
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_by_its_place() {
        for scheme in SCHEMES {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let layout = Layout { scheme, rows: 3, columns: 100 };
                let mut numbers = normal(300, 1.0);
                numbers[2 * 100 + 77] = bad;
                assert_eq!(layout.quantize(&numbers), Err(NotFinite { row: 2, column: 77 }), "{scheme:?} {bad}");
            }
        }
    }

    #[test]
    fn the_levels_are_the_papers_and_each_is_its_own_code() {
        let paper = [
            -1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0f64,
        ];
        assert_eq!(NF4.map(f64::from), paper);
        let layout = Layout { scheme: Scheme::Nf4, rows: 1, columns: 16 };
        let bytes = layout.quantize(&NF4).unwrap();
        assert_eq!(bytes, [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0x80, 0x3f]);
        let whole = Layout { scheme: Scheme::Int8, rows: 1, columns: 4 };
        assert_eq!(whole.quantize(&[127.0, -127.0, -1.4, 0.5]).unwrap(), [127, 129, 255, 0, 0x80, 0x3f]);
    }

    #[test]
    fn bytes_are_those_that_were_promised() {
        let bytes = |scheme, rows, columns| Layout { scheme, rows, columns }.bytes();
        // Codes, then two bytes a block.
        assert_eq!((bytes(Scheme::Int8, 10, 128), bytes(Scheme::Nf4, 10, 128)), (1280 + 40, 640 + 40));
        assert_eq!((bytes(Scheme::Int8, 3, 65), bytes(Scheme::Nf4, 3, 65)), (196 + 12, 100 + 12));
        let of_bf16 = |scheme| bytes(scheme, 320, 2880) as f64 / (320.0 * 2880.0 * 2.0);
        assert!(of_bf16(Scheme::Int8) <= 0.53 && of_bf16(Scheme::Nf4) <= 0.28);
    }
}
