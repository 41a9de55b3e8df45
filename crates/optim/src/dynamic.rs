//! The dynamic 8-bit code of optimizer states (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", 2016;
//! Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022).
//!
//! A byte names one of 256 numbers in −1…1 (signed) or 0…1 (unsigned): for each power of ten from 10⁻⁶ to 1, the middles of equal
//! cells of 0.1…1, twice as many of them as for the power below, and 0 and 1. A block of 256 elements shares one scale, its
//! largest magnitude.
//!
//! The signed numbers hold 1 but not −1, as published: a block whose largest magnitude is negative gets it back as 0.993 of itself.
//! One rule differs from bitsandbytes: a second moment that is not 0 never becomes 0 (it would turn the update into m/ε). It takes
//! the smallest code instead, which makes its step smaller, not larger.

use std::sync::LazyLock;

/// Elements that share a scale.
pub const BLOCK: usize = 256;

/// Which of the two sets of numbers a state is stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// For values of both signs, as first moments.
    Signed,
    /// For values of 0 and more, as second moments.
    Unsigned,
}

/// The numbers of a code in rising order, and the borders halfway between them.
pub struct Book {
    pub values: [f32; 256],
    borders: [f32; 255],
}

impl Code {
    pub fn book(self) -> &'static Book {
        static SIGNED: LazyLock<Book> = LazyLock::new(|| Book::new(Code::Signed));
        static UNSIGNED: LazyLock<Book> = LazyLock::new(|| Book::new(Code::Unsigned));
        match self {
            Code::Signed => &SIGNED,
            Code::Unsigned => &UNSIGNED,
        }
    }

    /// The code of 0, which fresh states are filled with.
    pub fn zero(self) -> u8 {
        match self {
            Code::Signed => 127,
            Code::Unsigned => 0,
        }
    }
}

impl Book {
    fn new(code: Code) -> Book {
        let mut values = vec![0.0, 1.0];
        for exponent in 0..7 {
            let cells = if code == Code::Signed { 1 << exponent } else { 2 << exponent };
            let power = 10f64.powi(exponent - 6);
            for cell in 0..cells {
                let border = |i: i32| 0.1 + 0.9 * f64::from(i) / f64::from(cells);
                let middle = (power * (border(cell) + border(cell + 1)) / 2.0) as f32;
                values.push(middle);
                if code == Code::Signed {
                    values.push(-middle);
                }
            }
        }
        values.sort_by(f32::total_cmp);
        let values: [f32; 256] = values.try_into().expect("2 + 2·127 or 2 + 254 numbers");
        Book { values, borders: std::array::from_fn(|i| (values[i] + values[i + 1]) / 2.0) }
    }

    /// The code of the number nearest to `value`. Eight comparisons, no branch.
    fn nearest(&self, value: f32) -> u8 {
        let mut code = 0;
        for step in [128, 64, 32, 16, 8, 4, 2, 1] {
            code += if value > self.borders[code + step - 1] { step } else { 0 };
        }
        code as u8
    }

    /// Writes a block (at most [`BLOCK`] elements) as codes; returns its scale.
    pub fn encode(&self, code: Code, block: &[f32], codes: &mut [u8]) -> f32 {
        let scale = block.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
        // The scale of a block of tiny numbers has no finite inverse; its numbers are 0 for all purposes.
        if scale < f32::MIN_POSITIVE {
            codes.fill(code.zero());
            return 0.0;
        }
        for (code_of, value) in codes.iter_mut().zip(block) {
            *code_of = self.nearest(value / scale);
        }
        if code == Code::Unsigned {
            codes.iter_mut().zip(block).for_each(|(code_of, value)| *code_of = (*code_of).max(u8::from(*value > 0.0)));
        }
        scale
    }

    /// Reads a block back.
    pub fn decode(&self, codes: &[u8], scale: f32, block: &mut [f32]) {
        block.iter_mut().zip(codes).for_each(|(value, code)| *value = self.values[usize::from(*code)] * scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_within_half_a_cell_and_zero_comes_back_as_zero() {
        let mut rng = base::Rng::new(11, "test", &[]);
        for code in [Code::Signed, Code::Unsigned] {
            let book = code.book();
            for size in [1, 7, BLOCK] {
                let magnitude = 10f32.powi(rng.below(60) as i32 - 30);
                let draw = |rng: &mut base::Rng| magnitude * rng.normal() * 10f32.powf(-6.0 * rng.uniform());
                let mut block: Vec<f32> = (0..size).map(|_| draw(&mut rng)).collect();
                if code == Code::Unsigned {
                    block.iter_mut().for_each(|v| *v = v.abs());
                }
                block[size / 2] = 0.0;
                let (mut codes, mut back) = (vec![0; size], vec![9.0; size]);
                let scale = book.encode(code, &block, &mut codes);
                book.decode(&codes, scale, &mut back);
                for ((value, back), index) in block.iter().zip(&back).zip(&codes) {
                    let index = usize::from(*index);
                    let below = book.values[index.saturating_sub(1)];
                    let above = book.values[(index + 1).min(255)];
                    let half = (book.values[index] - below).max(above - book.values[index]) / 2.0 * scale * 1.0001;
                    let lifted = code == Code::Unsigned && index == 1;
                    assert!((value - back).abs() <= half || lifted, "{code:?} {value:e} came back as {back:e}, half a cell is {half:e}");
                    let lost = *value != 0.0 && *back == 0.0;
                    assert!(!(lost && code == Code::Unsigned) && (*value != 0.0 || *back == 0.0), "{code:?} {value:e} {back:e}");
                }
            }
        }
    }

    #[test]
    fn the_largest_of_a_block_comes_back_exactly_and_tiny_blocks_are_zero() {
        for code in [Code::Signed, Code::Unsigned] {
            assert_eq!(code.book().values[usize::from(code.zero())], 0.0);
            let (mut codes, mut back) = ([0; 3], [0.0; 3]);
            let scale = code.book().encode(code, &[0.0, 3.7e-20, 1e-25], &mut codes);
            code.book().decode(&codes, scale, &mut back);
            assert_eq!(back[1], 3.7e-20);
            assert_eq!(code.book().encode(code, &[1e-40, 0.0, 0.0], &mut codes), 0.0);
            assert_eq!(codes, [code.zero(); 3]);
        }
    }
}
