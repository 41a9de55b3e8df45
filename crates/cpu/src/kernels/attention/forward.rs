//! O = softmax(scale · Q Kᵀ) V and the log-sum-exp of each row.

use super::super::matmul::Shared;
use super::super::matmul::micro::{LANES, Micro};
use super::super::matmul::operand::{Left, Right, Source, Term};
use super::super::matmul::pack::{pack_left, pack_panels};
use super::super::{Call, Kernel};
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::{Panels, Rows, Sizes, even, multiply, packed_rows, row_words};
use crate::element::Element;
use crate::isa::{Isa, isa, vectorize};
use crate::math::exp;
use crate::scratch::{carve, carved_bytes};
use crate::threads;
use base::DType;
use graph::Meta;
use graph::ops::Attention;
use half::{bf16, f16};

/// Most queries of a task, fewer when heads are wide: packing a block of keys must pay, and Q and O should stay in L2.
const QUERIES: usize = 512;
const QUERY_ELEMENTS: usize = 32 * 1024;
/// Most keys of a block.
const KEYS: usize = 256;

/// How the work is cut up.
#[derive(Clone, Copy)]
struct Plan {
    sizes: Sizes,
    /// Queries of a task.
    queries: usize,
    /// Keys of a block.
    keys: usize,
    /// Words that hold the channels of a head.
    depth_words: usize,
}

/// Scratch of a worker.
struct Worker<'a> {
    /// Q [queries, row_words]
    q: &'a mut [u32],
    /// Panels of Kᵀ [depth, keys] and V [keys, depth].
    k: &'a mut [u32],
    v: &'a mut [u32],
    spare: &'a mut [u32],
    /// A strip of scores [rows of a tile, keys], and P in the packed type.
    scores: &'a mut [f32],
    p: &'a mut [u32],
    /// O [queries, wide] before division by the sums.
    o: &'a mut [f32],
    most: &'a mut [f32],
    sum: &'a mut [f32],
    /// Units of the rows of Q and P, and of the columns of K and V.
    q_units: &'a mut [f32],
    p_units: &'a mut [f32],
    k_units: &'a mut [f32],
    v_units: &'a mut [f32],
}

impl Plan {
    fn new(micro: &Micro, sizes: Sizes) -> Plan {
        let keys = even(sizes.keys, KEYS, micro.columns);
        Plan {
            sizes,
            queries: even(sizes.queries, (QUERY_ELEMENTS / sizes.depth).clamp(96, QUERIES), micro.rows),
            keys,
            depth_words: micro.words(sizes.depth),
        }
    }

    /// Elements of the parts of [`Worker`], in their order.
    fn parts(&self, micro: &Micro) -> [usize; 13] {
        let wide = self.sizes.wide();
        [
            self.queries * row_words(self.depth_words),
            self.depth_words * self.keys,
            micro.words(self.keys) * wide,
            LANES * self.depth_words,
            micro.rows * self.keys,
            micro.rows * self.keys,
            self.queries * wide,
            self.queries,
            self.queries,
            self.queries,
            micro.rows,
            self.keys,
            wide,
        ]
    }

    fn worker_bytes(&self, micro: &Micro) -> usize {
        self.parts(micro).iter().map(|n| carved_bytes::<u32>(*n) as usize).sum()
    }

    fn worker<'a>(&self, micro: &Micro, mut bytes: &'a mut [u8]) -> Worker<'a> {
        let [q, k, v, spare, scores, p, o, most, sum, units @ ..] = self.parts(micro);
        let b = &mut bytes;
        Worker {
            q: carve(b, q),
            k: carve(b, k),
            v: carve(b, v),
            spare: carve(b, spare),
            scores: carve(b, scores),
            p: carve(b, p),
            o: carve(b, o),
            most: carve(b, most),
            sum: carve(b, sum),
            q_units: carve(b, units[0]),
            p_units: carve(b, units[1]),
            k_units: carve(b, units[2]),
            v_units: carve(b, units[3]),
        }
    }
}

impl Kernel for Attention {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let micro = Micro::of(isa(), inputs[0].dtype);
        let plan = Plan::new(micro, Sizes::new(self.heads, &inputs[0].shape, &inputs[1].shape));
        (plan.worker_bytes(micro) * threads::count()) as u64
    }

    fn run(&self, call: &mut Call) {
        let (q, k) = (&call.inputs[0], &call.inputs[1]);
        let isa = isa();
        let micro = Micro::of(isa, q.dtype());
        let sizes = Sizes::new(self.heads, &q.meta.shape, &k.meta.shape);
        let plan = Plan::new(micro, sizes);
        let bytes = plan.worker_bytes(micro);
        assert!(call.scratch.len() >= bytes * threads::count(), "attention: the planned scratch is too small");
        let shared = Shared::new(call.scratch);
        let (inputs, outputs) = (call.inputs, call.outputs);
        let blocks = sizes.queries.div_ceil(plan.queries);
        threads::for_each(sizes.batch * sizes.heads * blocks, |task, number| {
            let (head, block) = (task / blocks, task % blocks);
            // SAFETY: each worker has its own bytes of scratch, whose size is checked above.
            let scratch = unsafe { std::slice::from_raw_parts_mut(shared.pointer().add(number * bytes), bytes) };
            let part = Part { op: self, isa, micro, plan, first: block * plan.queries };
            let heads = [0, 1, 2].map(|i| sizes.head(&inputs[i], head));
            // SAFETY: rows and channels of this head and block are this task's alone.
            unsafe {
                let worker = &mut plan.worker(micro, scratch);
                part.run(heads, worker);
                let lse = outputs[1].pointer::<f32>().add(head * sizes.queries);
                let to = sizes.head(&outputs[0], head).pointer.cast_mut();
                match outputs[0].dtype() {
                    DType::BF16 => finish::<bf16>(&part, worker, to.cast(), lse),
                    DType::F16 => finish::<f16>(&part, worker, to.cast(), lse),
                    _ => finish::<f32>(&part, worker, to.cast(), lse),
                }
            }
        });
    }
}

/// A block of queries of one head.
struct Part<'a> {
    op: &'a Attention,
    isa: Isa,
    micro: &'static Micro,
    plan: Plan,
    first: usize,
}

impl Part<'_> {
    fn queries(&self) -> usize {
        (self.plan.sizes.queries - self.first).min(self.plan.queries)
    }

    /// # Safety
    /// The sources are q, k and v of this head; the worker is laid out by the plan.
    unsafe fn run(&self, [q, k, v]: [Source; 3], worker: &mut Worker) {
        let (micro, sizes) = (self.micro, &self.plan.sizes);
        let (depth, stride) = (sizes.depth, sizes.stride());
        let queries = self.queries();
        worker.most[..queries].fill(f32::NEG_INFINITY);
        worker.sum[..queries].fill(0.0);
        let left = Left::Rows { source: q, stride };
        let keys_of = |source, columns| if columns { Right::Columns { source, stride } } else { Right::rows(source, stride) };
        let seen = if self.op.causal { (self.first + queries).min(sizes.keys) } else { sizes.keys };
        // SAFETY: the worker's parts are as large as the plan says.
        unsafe {
            let across = Term { left, right: keys_of(k, true), depth };
            let rows = self.first..self.first + queries;
            let into = packed_rows(worker.q, self.plan.depth_words, worker.q_units);
            pack_left(micro, &[across], rows, 0..self.plan.depth_words, into);
            for first_key in (0..seen).step_by(self.plan.keys) {
                let keys = (sizes.keys - first_key).min(self.plan.keys);
                let spare = worker.spare.as_mut_ptr();
                let columns = first_key..first_key + keys;
                pack_panels(micro, &[across], columns, 0..self.plan.depth_words, worker.k.as_mut_ptr(), worker.k_units.as_mut_ptr(), spare);
                let values = Term { left, right: keys_of(v.at(first_key * stride), false), depth: keys };
                pack_panels(micro, &[values], 0..depth, 0..micro.words(keys), worker.v.as_mut_ptr(), worker.v_units.as_mut_ptr(), spare);
                for row in (0..queries).step_by(micro.rows) {
                    self.strip(worker, row, (queries - row).min(micro.rows), first_key, keys);
                }
            }
        }
    }

    /// Some rows against one block of keys.
    ///
    /// # Safety
    /// The worker holds Q and this block's K and V.
    unsafe fn strip(&self, worker: &mut Worker, row: usize, rows: usize, first_key: usize, keys: usize) {
        let (micro, wide) = (self.micro, self.plan.sizes.wide());
        if self.op.causal && first_key > self.first + row + rows - 1 {
            return;
        }
        let words = self.plan.depth_words;
        // SAFETY: as the caller promises.
        unsafe {
            let q = Rows::new(worker.q, row_words(words), worker.q_units).from(row);
            let k = Panels { packed: worker.k.as_ptr(), words, units: worker.k_units.as_ptr() };
            multiply(micro, q, rows, k, (worker.scores.as_mut_ptr(), self.plan.keys), keys, false);
            let strip = Softmax {
                scores: &mut *worker.scores,
                stride: self.plan.keys,
                rows,
                keys,
                padded: (micro.words(keys) * micro.per_word()).next_multiple_of(LANES),
                scale: self.op.scale,
                // Keys of the block that the first row sees, below zero if the block begins after it; each further row sees one more.
                seen: if self.op.causal { (self.first + row + 1) as isize - first_key as isize } else { isize::MAX / 2 },
                most: &mut worker.most[row..row + rows],
                sum: &mut worker.sum[row..row + rows],
                o: &mut worker.o[row * wide..(row + rows) * wide],
                wide,
            };
            let p = worker.p.as_mut_ptr();
            match (self.isa, micro.packed) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512Vnni, DType::BF16) => avx512::softmax_fixed(strip, p.cast(), worker.p_units),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512Bf16 | Isa::Amx, DType::BF16) => avx512::softmax::<true>(strip, p),
                #[cfg(target_arch = "x86_64")]
                (isa, _) if isa >= Isa::Avx512 => avx512::softmax::<false>(strip, p),
                (_, DType::BF16) => softmax::<bf16>(strip, p.cast()),
                _ => softmax::<f32>(strip, p.cast()),
            }
            let p = Rows::new(worker.p, self.plan.keys / micro.per_word(), worker.p_units);
            let v = Panels { packed: worker.v.as_ptr(), words: micro.words(keys), units: worker.v_units.as_ptr() };
            let o = worker.o.as_mut_ptr().add(row * wide);
            multiply(micro, p, rows, v, (o, wide), self.plan.sizes.depth, first_key > 0);
        }
    }
}

/// A strip of scores on the way to P, with the running state of its rows.
pub struct Softmax<'a> {
    /// Fixed point leaves P here in floats.
    pub scores: &'a mut [f32],
    pub stride: usize,
    pub rows: usize,
    pub keys: usize,
    /// Columns of P that are written: zeros beyond the keys.
    pub padded: usize,
    pub scale: f32,
    pub seen: isize,
    pub most: &'a mut [f32],
    pub sum: &'a mut [f32],
    pub o: &'a mut [f32],
    pub wide: usize,
}

vectorize! {
    /// P = exp(scale · S − max) row by row, after the running maxima, sums and O are brought up to date. P [rows, stride], zeros for keys
    /// that don't exist or aren't seen.
    fn softmax<P: Element>(strip: Softmax, p: *mut P) {
        for r in 0..strip.rows {
            let padded = strip.padded;
            let seen = (strip.seen + r as isize).clamp(0, strip.keys as isize) as usize;
            let scores = &strip.scores[r * strip.stride..r * strip.stride + padded];
            let at = |chunk: usize, i: usize, s: f32| if chunk + i < seen { s * strip.scale } else { f32::NEG_INFINITY };
            let mut most = [f32::NEG_INFINITY; LANES];
            for (c, chunk) in scores.chunks_exact(LANES).enumerate() {
                for i in 0..LANES {
                    let s = at(c * LANES, i, chunk[i]);
                    most[i] = if s > most[i] { s } else { most[i] };
                }
            }
            let before = strip.most[r];
            let now = most.iter().fold(before, |a, b| if *b > a { *b } else { a });
            // A row of −∞ only: any finite reference will do.
            let reference = if now == f32::NEG_INFINITY { 0.0 } else { now };
            let mut sums = [0.0f32; LANES];
            // SAFETY: P has `rows` rows of `stride` elements, and `padded` is at most `stride`.
            let line = unsafe { std::slice::from_raw_parts_mut(p.add(r * strip.stride), padded) };
            for (c, (chunk, line)) in scores.chunks_exact(LANES).zip(line.chunks_exact_mut(LANES)).enumerate() {
                for i in 0..LANES {
                    let e = exp(at(c * LANES, i, chunk[i]) - reference);
                    sums[i] += e;
                    line[i] = P::from_f32(e);
                }
            }
            let factor = exp(before - reference);
            strip.most[r] = now;
            strip.sum[r] = strip.sum[r] * factor + tree(sums);
            if factor != 1.0 && before != f32::NEG_INFINITY {
                strip.o[r * strip.wide..(r + 1) * strip.wide].iter_mut().for_each(|o| *o *= factor);
            }
        }
    }
}

#[inline(always)]
fn tree(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        (0..width).for_each(|i| sums[i] += sums[i + width]);
        width /= 2;
    }
    sums[0]
}

/// Divides O by the sums, and writes it and the log-sum-exp.
///
/// # Safety
/// `to` is the head's first element of O, `lse` its first of L; the task's rows are its own.
unsafe fn finish<T: Element>(part: &Part, worker: &Worker, to: *mut T, lse: *mut f32) {
    let sizes = &part.plan.sizes;
    // The AVX-512 paths work in powers of two.
    let unit = if part.isa >= Isa::Avx512 { std::f32::consts::LN_2 } else { 1.0 };
    let queries = part.queries();
    for (r, (most, sum)) in worker.most.iter().zip(worker.sum.iter()).take(queries).enumerate() {
        // SAFETY: as the caller promises.
        unsafe { lse.add(part.first + r).write(most * unit + sum.ln()) };
    }
    // SAFETY: as the caller promises.
    let to = unsafe { to.add(part.first * sizes.stride()) };
    divide(worker.o, &worker.sum[..queries], sizes.wide(), sizes.depth, to, sizes.stride());
}

vectorize! {
    /// Rows of `depth` numbers, divided by their sums and rounded.
    fn divide<T: Element>(o: &[f32], sums: &[f32], wide: usize, depth: usize, to: *mut T, stride: usize) {
        for (r, sum) in sums.iter().enumerate() {
            for (c, o) in o[r * wide..r * wide + depth].iter().enumerate() {
                // SAFETY: the caller owns these rows of the output.
                unsafe { to.add(r * stride + c).write(T::from_f32(o / sum)) };
            }
        }
    }
}
