//! Packing: pieces of operands, whatever their type and layout, as the words that a micro-kernel reads.

use super::micro::{Interleave, LANES, Micro, Transpose};
use super::operand::{Anchor, Left, Pixels, Right, Source, Term};
use super::prefetch;
use super::widen::{Widened, widen};
use crate::element::Element;
use crate::isa::vectorize;
use base::DType;
use half::{bf16, f16};
use std::ops::Range;

/// Runs `$body` with `$type` standing for the stored float type.
macro_rules! with_float {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $type = f32;
                $body
            }
            DType::BF16 => {
                type $type = bf16;
                $body
            }
            DType::F16 => {
                type $type = f16;
                $body
            }
            DType::U32 | DType::U8 => unreachable!("matrices are floats"),
            DType::Quantized(_) => unreachable!("quantized rows are widened before"),
        }
    };
}

vectorize! {
    fn convert_loop<S: Element, D: Element>(from: *const S, len: usize, into: *mut D) {
        for i in 0..len {
            // SAFETY: in range by the caller's promise.
            unsafe { into.add(i).write(D::from_f32(from.add(i).read_unaligned().to_f32())) };
        }
    }
}

/// Copies `len` floats, converted to the packed type (F32 or BF16).
///
/// # Safety
/// Both ranges are valid.
pub unsafe fn convert(from: Source, len: usize, packed: DType, into: *mut u8) {
    if from.dtype == packed {
        // SAFETY: valid by the caller; scratch never overlaps tensors.
        return unsafe { std::ptr::copy_nonoverlapping(from.pointer, into, len * packed.bytes()) };
    }
    with_float!(from.dtype, S => match packed {
        DType::BF16 => convert_loop::<S, bf16>(from.pointer.cast(), len, into.cast()),
        _ => convert_loop::<S, f32>(from.pointer.cast(), len, into.cast()),
    });
}

/// The same for a range of `words`, of which `len` numbers exist: zeros follow.
///
/// # Safety
/// `from` has `len` elements, `into` has `words` words.
unsafe fn convert_words(from: Source, len: usize, packed: DType, words: usize, into: *mut u32) {
    // SAFETY: the numbers that exist fit into the words.
    unsafe {
        let end = into.cast::<u8>();
        convert(from, len, packed, end);
        end.add(len * packed.bytes()).write_bytes(0, words * 4 - len * packed.bytes());
    }
}

/// What a range of words of the terms' joined depth means: calls `body(term, numbers of its depth, first word within the range, words)`.
pub fn each_term(micro: &Micro, terms: &[Term], words: Range<usize>, mut body: impl FnMut(&Term, Range<usize>, usize, usize)) {
    let mut start = 0;
    for term in terms {
        let end = start + micro.words(term.depth);
        let (first, last) = (words.start.max(start), words.end.min(end));
        if first < last {
            let numbers = (first - start) * micro.per_word()..((last - start) * micro.per_word()).min(term.depth);
            body(term, numbers, first - words.start, last - first);
        }
        start = end;
    }
}

/// Where packed rows of left operands go.
#[derive(Clone, Copy)]
pub struct PackedRows {
    /// [rows, stride] words.
    pub words: *mut u32,
    pub stride: usize,
    /// A unit a row; only for micro-kernels in fixed point.
    pub units: *mut f32,
}

/// Packs rows of left operands. In fixed point `words` lie within one term.
///
/// # Safety
/// The rows and words exist in the operands, and `into` is large enough.
pub unsafe fn pack_left(micro: &Micro, terms: &[Term], rows: Range<usize>, words: Range<usize>, into: PackedRows) {
    each_term(micro, terms, words, |term, numbers, first, count| {
        let mut anchor = match &term.left {
            Left::Pixels(pixels) => Some(pixels.anchor(rows.start)),
            Left::Rows { .. } => None,
        };
        for (i, row) in rows.clone().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let to = into.words.add(i * into.stride + first);
                match (&term.left, anchor) {
                    (Left::Pixels(pixels), Some(at)) => {
                        pack_pixel(pixels, at, numbers.clone(), micro.packed, count, to);
                        anchor = Some(pixels.next(row, at));
                    }
                    (Left::Rows { source, stride }, _) => {
                        convert_words(source.at(row * stride + numbers.start), numbers.len(), micro.packed, count, to);
                    }
                    (Left::Pixels(_), None) => unreachable!("pixels have an anchor"),
                }
                if let Some(fixed) = micro.fixed {
                    into.units.add(i).write((fixed.row)(to, count));
                }
            }
        }
    });
}

/// Packs the numbers that one pixel of the grid meets: pieces of its taps.
///
/// # Safety
/// As [`pack_left`].
unsafe fn pack_pixel(pixels: &Pixels, anchor: Anchor, numbers: Range<usize>, packed: DType, words: usize, into: *mut u32) {
    let to = into.cast::<u8>();
    let mut k = numbers.start;
    while k < numbers.end {
        let (tap, channel) = (k / pixels.channels, k % pixels.channels);
        let len = (pixels.channels - channel).min(numbers.end - k);
        // SAFETY: as the caller promises.
        unsafe {
            let to = to.add((k - numbers.start) * packed.bytes());
            match pixels.meet(anchor, tap) {
                Some(met) => convert(met.at(channel), len, packed, to),
                None => to.write_bytes(0, len * packed.bytes()),
            }
        }
        k += len;
    }
    let done = numbers.len() * packed.bytes();
    // SAFETY: as above.
    unsafe { to.add(done).write_bytes(0, words * 4 - done) };
}

/// Numbers of the reduction that are packed for all panels before the next ones: rows are long, and pieces of a line from each would leave
/// most of every page unread.
const PACKED_ROWS: usize = 64;

/// Packs panels of right operands, one after the other, each [words, width] words; in fixed point with a unit a column.
///
/// # Safety
/// The columns and words exist in the operands, and `into` and `units` are large enough; `spare` has 16 rows of `words` words.
pub unsafe fn pack_panels(
    micro: &Micro,
    terms: &[Term],
    columns: Range<usize>,
    words: Range<usize>,
    into: *mut u32,
    units: *mut f32,
    spare: *mut u32,
) {
    let (total, count) = (words.len(), columns.len());
    // SAFETY: as the caller promises.
    unsafe {
        pack_words(micro, terms, columns, words, into, spare);
        if let Some(fixed) = micro.fixed {
            micro.panels(count).for_each(|(column, width, _)| (fixed.panel)(into.add(column * total), total, width, units.add(column)));
        }
    }
}

/// The same without fixed point.
///
/// # Safety
/// As [`pack_panels`].
pub unsafe fn pack_words(micro: &Micro, terms: &[Term], columns: Range<usize>, words: Range<usize>, into: *mut u32, spare: *mut u32) {
    let total = words.len();
    let range = |column: usize, exist: usize| columns.start + column..columns.start + column + exist;
    let panels = || micro.panels(columns.len());
    // SAFETY: as the caller promises.
    unsafe {
        each_term(micro, terms, words.clone(), |term, numbers, first, count| {
            let part = |(column, width, exist), numbers: Range<usize>, first: usize, count: usize| {
                let into = into.add(column * total + first * width);
                pack_part(micro, &term.right, range(column, exist), width, numbers, count, into, spare);
            };
            // What comes next, where nobody could ask for it while the block before was multiplied.
            let ahead = |columns, numbers| {
                if words.start == 0 {
                    prefetch::of(&term.right, columns, numbers, 0, 1);
                }
            };
            if matches!(term.right, Right::Columns { .. }) {
                let mut next = panels().skip(1);
                for panel in panels() {
                    if let Some((column, _, exist)) = next.next() {
                        ahead(range(column, exist), numbers.clone());
                    }
                    part(panel, numbers.clone(), first, count);
                }
                return;
            }
            for start in numbers.clone().step_by(PACKED_ROWS) {
                let some = start..(start + PACKED_ROWS).min(numbers.end);
                let skipped = (start - numbers.start) / micro.per_word();
                let here = if some.end == numbers.end { count - skipped } else { some.len() / micro.per_word() };
                ahead(columns.clone(), some.end..(some.end + PACKED_ROWS).min(numbers.end));
                panels().for_each(|panel| part(panel, some.clone(), first + skipped, here));
            }
        });
    }
}

/// Packs numbers of one term for one panel: `into` [words, width] words, zeros beyond what exists.
///
/// # Safety
/// As [`pack_panels`].
#[allow(clippy::too_many_arguments)]
unsafe fn pack_part(
    micro: &Micro,
    right: &Right,
    columns: Range<usize>,
    width: usize,
    numbers: Range<usize>,
    words: usize,
    into: *mut u32,
    spare: *mut u32,
) {
    let filled = numbers.len().div_ceil(micro.per_word());
    match *right {
        Right::Columns { source, stride } => {
            for group in (0..width).step_by(LANES) {
                let exist = columns.len().saturating_sub(group).min(LANES);
                let from = source.at((columns.start + group) * stride + numbers.start);
                // SAFETY: as the caller promises.
                unsafe { pack_columns(micro, from, stride, exist, numbers.len(), words, into.add(group), width, spare) };
            }
        }
        // SAFETY: as the caller promises.
        _ if matches!(right.dtype(), DType::Quantized(_)) => unsafe { pack_quantized(micro, right, &columns, numbers, width, into) },
        // SAFETY: as above.
        _ => unsafe { pack_plain(micro, right, &columns, numbers, width, into) },
    }
    // SAFETY: words up to `words` are the panel's.
    unsafe { into.add(filled * width).write_bytes(0, (words - filled) * width) };
}

/// Packs rows of plain numbers.
///
/// # Safety
/// As [`pack_panels`].
unsafe fn pack_plain(micro: &Micro, right: &Right, columns: &Range<usize>, numbers: Range<usize>, width: usize, into: *mut u32) {
    let narrow = matches!(right.dtype(), DType::BF16 | DType::F16);
    if micro.interleave.is_some() && narrow && matches!(right, Right::Rows { .. }) && right.is_even() {
        // SAFETY: as the caller promises.
        unsafe { interleave_runs(micro, right, columns, numbers, width, into) };
    } else if micro.packed == DType::F32 && matches!(right, Right::Rows { .. }) {
        // SAFETY: as the caller promises.
        unsafe { pack_runs(right, columns, numbers, width, into) };
    } else {
        with_float!(right.dtype(), S => pack_rows::<S>(micro.packed, right, columns, numbers, width, into));
    }
}

/// Calls `body(first, rows, source)` for each run of rows: within one they are evenly spaced, and to find each anew would take longer
/// than to pack it. `first` counts from the beginning of `numbers`.
fn each_run(right: &Right, numbers: Range<usize>, mut body: impl FnMut(usize, usize, Source)) {
    let Right::Rows { run, .. } = right else { unreachable!("only stored rows come in runs") };
    let mut k = numbers.start;
    while k < numbers.end {
        let rows = (run - k % run).min(numbers.end - k);
        if let Some(source) = right.row(k) {
            body(k - numbers.start, rows, source);
        }
        k += rows;
    }
}

/// Packs rows as f32 run by run.
///
/// # Safety
/// As [`pack_panels`].
unsafe fn pack_runs(right: &Right, columns: &Range<usize>, numbers: Range<usize>, width: usize, into: *mut u32) {
    let Right::Rows { stride, .. } = right else { unreachable!("checked by the caller") };
    each_run(right, numbers, |first, rows, source| {
        let from = source.at(columns.start).pointer;
        // SAFETY: `first` is within the panel.
        let into = unsafe { into.add(first * width).cast() };
        with_float!(right.dtype(), S => widen_rows::<S>(from.cast(), *stride, rows, columns.len(), into, width));
    });
}

/// Rows of quantized numbers that are widened together where they must be interleaved afterwards.
const WIDENED_ROWS: usize = 32;
/// Most columns of a panel.
const MOST_COLUMNS: usize = 4 * LANES;

/// Packs rows of quantized numbers: as f32 straight into the panel; else some rows as bf16, and these into the panel.
///
/// # Safety
/// As [`pack_panels`].
unsafe fn pack_quantized(micro: &Micro, right: &Right, columns: &Range<usize>, numbers: Range<usize>, width: usize, into: *mut u32) {
    // SAFETY: as the caller promises; the buffer takes the widened rows.
    unsafe {
        if micro.packed == DType::F32 {
            return widen_runs(right, columns, numbers, Widened { pointer: into.cast(), dtype: DType::F32, stride: width });
        }
        let mut rows = [0u16; WIDENED_ROWS * MOST_COLUMNS];
        assert!(width <= MOST_COLUMNS, "a panel of {width} columns");
        for first in numbers.clone().step_by(WIDENED_ROWS) {
            let some = first..(first + WIDENED_ROWS).min(numbers.end);
            widen_runs(right, columns, some.clone(), Widened { pointer: rows.as_mut_ptr().cast(), dtype: micro.packed, stride: width });
            let widened = Right::rows(Source::plain(rows.as_ptr().cast(), micro.packed), width);
            let into = into.add((first - numbers.start) / micro.per_word() * width);
            pack_plain(micro, &widened, &(0..columns.len()), 0..some.len(), width, into);
        }
    }
}

/// Widens rows of a quantized operand, run by run: within a run they are rows of the matrix that follow each other.
///
/// # Safety
/// The rows and columns exist, and `into` takes them.
unsafe fn widen_runs(right: &Right, columns: &Range<usize>, numbers: Range<usize>, into: Widened) {
    each_run(right, numbers, |first, rows, source| {
        // SAFETY: as the caller promises.
        unsafe { widen(source.at(columns.start), rows, columns.len(), into.skip_rows(first)) };
    });
}

/// Packs rows of bf16 or f16 run by run; within a run they are evenly spaced.
///
/// # Safety
/// As [`pack_panels`].
unsafe fn interleave_runs(micro: &Micro, right: &Right, columns: &Range<usize>, numbers: Range<usize>, width: usize, into: *mut u32) {
    let (Right::Rows { stride, .. }, Some(interleave)) = (right, micro.interleave) else { unreachable!("checked by the caller") };
    each_run(right, numbers, |first, rows, source| {
        let from = source.at(columns.start).pointer.cast();
        // SAFETY: as the caller promises; runs are even, so each begins a word.
        unsafe {
            let into = into.add(first / 2 * width);
            interleave(&Interleave { from, dtype: right.dtype(), from_stride: *stride, rows, exist: columns.len(), into, width });
        }
    });
}

/// Transposes up to 16 columns that are stored as rows of `len` numbers.
///
/// # Safety
/// As [`pack_panels`].
#[allow(clippy::too_many_arguments)]
unsafe fn pack_columns(
    micro: &Micro,
    from: Source,
    stride: usize,
    rows: usize,
    len: usize,
    words: usize,
    into: *mut u32,
    into_stride: usize,
    spare: *mut u32,
) {
    // SAFETY: as the caller promises; `spare` takes the converted rows.
    unsafe {
        let whole = from.dtype == micro.packed && len == words * micro.per_word();
        let (from, from_stride) = if whole {
            (from.pointer, stride * from.dtype.bytes())
        } else if let DType::Quantized(_) = from.dtype {
            let into = Widened { pointer: spare.cast(), dtype: micro.packed, stride: words * micro.per_word() };
            widen(from, rows, len, into);
            (spare.cast_const().cast(), words * 4)
        } else {
            for i in 0..rows {
                convert_words(from.at(i * stride), len, micro.packed, words, spare.add(i * words));
            }
            (spare.cast_const().cast(), words * 4)
        };
        (micro.transpose)(&Transpose { from, from_stride, rows, words, into, into_stride });
    }
}

vectorize! {
    /// Widens `rows` rows of `exist` numbers that are `stride` apart to rows of `width`, a multiple of 16, filled up with zeros. All of it
    /// must be valid.
    fn widen_rows<S: Element>(from: *const S, stride: usize, rows: usize, exist: usize, into: *mut f32, width: usize) {
        for row in 0..rows {
            for start in (0..width).step_by(LANES) {
                let mut line = [0.0f32; LANES];
                // SAFETY: as the caller promises.
                unsafe {
                    let from = from.add(row * stride + start);
                    if start + LANES <= exist {
                        let stored = from.cast::<[S; LANES]>().read_unaligned();
                        for (number, stored) in line.iter_mut().zip(stored) {
                            *number = stored.to_f32();
                        }
                    } else {
                        for (i, number) in line.iter_mut().enumerate().take(exist.saturating_sub(start)) {
                            *number = from.add(i).read_unaligned().to_f32();
                        }
                    }
                    into.add(row * width + start).cast::<[f32; LANES]>().write_unaligned(line);
                }
            }
        }
    }
}

vectorize! {
    /// Packs rows as they are (f32), or two and two interleaved (bf16). Operands as for [`pack_panels`].
    fn pack_rows<S: Element>(packed: DType, right: &Right, columns: &Range<usize>, numbers: Range<usize>, width: usize, into: *mut u32) {
        let row = |k: usize| right.row(k).map(|s| s.at(columns.start).pointer.cast::<S>());
        let pairs = packed == DType::BF16;
        let step = if pairs { 2 } else { 1 };
        for w in 0..numbers.len().div_ceil(step) {
            let k = numbers.start + w * step;
            let low = row(k);
            let high = if pairs && k + 1 < numbers.end { row(k + 1) } else { None };
            for start in (0..width).step_by(LANES) {
                let exist = columns.len().saturating_sub(start).min(LANES);
                // SAFETY: rows have `columns.len()` elements, the panel has `width` words a row, by the caller's promise.
                unsafe {
                    let (low, high) = (read(low, start, exist), read(high, start, exist));
                    let words: [u32; LANES] = std::array::from_fn(|i| if pairs { bits(low[i]) | bits(high[i]) << 16 } else { low[i].to_f32().to_bits() });
                    into.add(w * width + start).cast::<[u32; LANES]>().write_unaligned(words);
                }
            }
        }
    }
}

/// Up to 16 elements of a row, zeros for what does not exist.
///
/// # Safety
/// `exist` elements from `start` on are readable.
#[inline(always)]
unsafe fn read<S: Element>(row: Option<*const S>, start: usize, exist: usize) -> [S; LANES] {
    let mut line = [S::from_f32(0.0); LANES];
    if let Some(row) = row {
        // SAFETY: as the caller promises.
        unsafe {
            if exist == LANES {
                line = row.add(start).cast::<[S; LANES]>().read_unaligned();
            } else {
                (0..exist).for_each(|i| line[i] = row.add(start + i).read_unaligned());
            }
        }
    }
    line
}

#[inline(always)]
fn bits<S: Element>(value: S) -> u32 {
    if S::DTYPE == DType::BF16 {
        // A bf16 passes as it is: its f32 has it in the upper half.
        value.to_f32().to_bits() >> 16
    } else {
        u32::from(<bf16 as Element>::from_f32(value.to_f32()).to_bits())
    }
}
