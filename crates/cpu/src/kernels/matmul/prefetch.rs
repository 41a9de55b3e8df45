//! Asking for memory before it is read.

use super::micro::Micro;
use super::operand::{Right, Term};
use super::pack::each_term;
use std::ops::Range;

/// Asks for a share (`part` of `parts`) of what the next [`super::pack::pack_panels`] will read: weights come from far, and hardware doesn't see many
/// short rows coming.
pub fn right(micro: &Micro, terms: &[Term], columns: Range<usize>, words: Range<usize>, part: usize, parts: usize) {
    each_term(micro, terms, words, |term, numbers, _, _| of(&term.right, columns.clone(), numbers, part, parts));
}

/// The same of a range of numbers of one operand.
pub fn of(right: &Right, columns: Range<usize>, numbers: Range<usize>, part: usize, parts: usize) {
    let share = |count: usize| count * part / parts..count * (part + 1) / parts;
    match right {
        Right::Columns { source, stride } => {
            for column in share(columns.len()) {
                let (from, bytes) = source.at((columns.start + column) * stride + numbers.start).bytes(numbers.len());
                (0..bytes).step_by(64).for_each(|offset| line(from.wrapping_add(offset)));
            }
        }
        Right::Rows { .. } => {
            for k in share(numbers.len()) {
                let Some(row) = right.row(numbers.start + k) else { continue };
                let (from, bytes) = row.at(columns.start).bytes(columns.len());
                (0..bytes).step_by(64).for_each(|offset| line(from.wrapping_add(offset)));
            }
        }
        Right::Pixels(..) => {}
    }
}

#[inline(always)]
fn line(_address: *const u8) {
    // SAFETY: a hint, harmless at any address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(_address.cast());
    }
}
