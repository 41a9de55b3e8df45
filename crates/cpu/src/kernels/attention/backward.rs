//! ∂Q, ∂K, ∂V from P = exp(scale · S − L), computed again block by block.
//!
//! A task is one head and a share of its keys; it walks blocks of keys, and for each all queries, with transposed scores Sᵀ = K Qᵀ: then
//! Pᵀ and ∂Sᵀ are the left operands of ∂V and ∂K as they stand, and ∂Sᵀ the right one of ∂Qᵀ = Kᵀ ∂Sᵀ. Five products in one walk. What
//! different shares of keys give to ∂Q is kept apart and added in order at the end, so results don't depend on the number of threads.

use super::super::matmul::Shared;
use super::super::matmul::micro::{LANES, Micro, Transpose};
use super::super::matmul::operand::{Left, Right, Source, Term};
use super::super::matmul::pack::{convert, pack_left, pack_right};
use super::super::{Call, Kernel};
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::{Sizes, even, multiply, packed_rows, row_words};
use crate::element::Element;
use crate::isa::{Isa, isa, vectorize};
use crate::math::exp;
use crate::scratch::{carve, carved_bytes};
use crate::tensor::Tensor;
use crate::threads;
use base::DType;
use graph::Meta;
use graph::ops::AttentionGrad;
use half::bf16;

/// Most keys and queries of a block.
const KEYS: usize = 96;
const QUERIES: usize = 128;
/// Tasks to aim at: few heads share out their keys.
const TASKS: usize = 16;

/// How the work is cut up.
#[derive(Clone, Copy)]
struct Plan {
    sizes: Sizes,
    keys: usize,
    queries: usize,
    /// Shares of the keys, and blocks of keys of a share.
    shares: usize,
    share_blocks: usize,
    depth_words: usize,
    /// Queries in whole blocks.
    padded: usize,
}

/// Scratch of a worker.
struct Worker<'a> {
    /// Panels over all queries: Qᵀ and ∂Oᵀ [depth, queries], Q and ∂O [queries, depth].
    q_columns: &'a mut [u32],
    do_columns: &'a mut [u32],
    q_rows: &'a mut [u32],
    do_rows: &'a mut [u32],
    /// L and δ of all queries.
    lse: &'a mut [f32],
    delta: &'a mut [f32],
    /// K and V of a block [keys, depth], and Kᵀ [depth, keys].
    k: &'a mut [u32],
    v: &'a mut [u32],
    k_turned: &'a mut [u32],
    spare: &'a mut [u32],
    /// A strip of Sᵀ and ∂Pᵀ [rows of a tile, queries].
    scores: &'a mut [f32],
    slopes: &'a mut [f32],
    /// Pᵀ and ∂Sᵀ [keys, queries] in the packed type, and the panels of ∂Sᵀ.
    p: &'a mut [u32],
    ds: &'a mut [u32],
    ds_panels: &'a mut [u32],
    /// ∂K and ∂V of a block [keys, wide].
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Floats of a row of K as they come.
    line: &'a mut [f32],
}

impl Plan {
    fn new(micro: &Micro, sizes: Sizes) -> Plan {
        let keys = even(sizes.keys, KEYS, micro.rows.next_multiple_of(2));
        let queries = even(sizes.queries, QUERIES, micro.columns);
        let blocks = sizes.keys.div_ceil(keys);
        let share_blocks = blocks.div_ceil(TASKS.div_ceil(sizes.batch * sizes.heads).min(blocks));
        let shares = blocks.div_ceil(share_blocks);
        Plan {
            sizes,
            keys,
            queries,
            shares,
            share_blocks,
            depth_words: micro.words(sizes.depth),
            padded: sizes.queries.next_multiple_of(queries),
        }
    }

    /// Elements of ∂Qᵀ [depth, padded queries] of one head and share.
    fn share(&self) -> usize {
        (self.sizes.depth * self.padded).next_multiple_of(LANES)
    }

    /// Bytes of all shares' ∂Qᵀ.
    fn shares_bytes(&self) -> usize {
        self.sizes.batch * self.sizes.heads * self.shares * self.share() * 4
    }

    /// Elements of the parts of [`Worker`], in their order.
    fn parts(&self, micro: &Micro) -> [usize; 18] {
        let (wide, per_word) = (self.sizes.wide(), micro.per_word());
        let columns = self.padded * self.depth_words;
        let rows = self.padded / per_word * wide;
        let block = self.keys * self.queries / per_word;
        let left = self.keys * row_words(self.depth_words);
        let turned = self.sizes.depth * row_words(micro.words(self.keys));
        let strip = micro.rows * self.queries;
        let spare = LANES * self.depth_words;
        let sums = self.keys * wide;
        [
            columns,
            columns,
            rows,
            rows,
            self.padded,
            self.padded,
            left,
            left,
            turned,
            spare,
            strip,
            strip,
            block,
            block,
            block,
            sums,
            sums,
            self.sizes.depth,
        ]
    }

    fn worker_bytes(&self, micro: &Micro) -> usize {
        self.parts(micro).iter().map(|n| carved_bytes::<u32>(*n) as usize).sum()
    }

    fn worker<'a>(&self, micro: &Micro, mut bytes: &'a mut [u8]) -> Worker<'a> {
        let n = self.parts(micro);
        let b = &mut bytes;
        Worker {
            q_columns: carve(b, n[0]),
            do_columns: carve(b, n[1]),
            q_rows: carve(b, n[2]),
            do_rows: carve(b, n[3]),
            lse: carve(b, n[4]),
            delta: carve(b, n[5]),
            k: carve(b, n[6]),
            v: carve(b, n[7]),
            k_turned: carve(b, n[8]),
            spare: carve(b, n[9]),
            scores: carve(b, n[10]),
            slopes: carve(b, n[11]),
            p: carve(b, n[12]),
            ds: carve(b, n[13]),
            ds_panels: carve(b, n[14]),
            dk: carve(b, n[15]),
            dv: carve(b, n[16]),
            line: carve(b, n[17]),
        }
    }
}

impl Kernel for AttentionGrad {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let micro = Micro::plain(isa(), inputs[0].dtype);
        let plan = Plan::new(micro, Sizes::new(self.attention.heads, &inputs[1].shape, &inputs[2].shape));
        (plan.shares_bytes() + plan.worker_bytes(micro) * threads::count()) as u64
    }

    fn run(&self, call: &mut Call) {
        let (q, k) = (&call.inputs[1], &call.inputs[2]);
        let isa = isa();
        let micro = Micro::plain(isa, q.dtype());
        let sizes = Sizes::new(self.attention.heads, &q.meta.shape, &k.meta.shape);
        let plan = Plan::new(micro, sizes);
        let bytes = plan.worker_bytes(micro);
        assert!(call.scratch.len() >= plan.shares_bytes() + bytes * threads::count(), "attention: the planned scratch is too small");
        let (shares, workers) = call.scratch.split_at_mut(plan.shares_bytes());
        let (shares, workers) = (Shared::new(shares), Shared::new(workers));
        let (inputs, outputs) = (call.inputs, call.outputs);
        threads::for_each(sizes.batch * sizes.heads * plan.shares, |task, number| {
            // SAFETY: each worker has its own scratch and each task its own share of ∂Qᵀ; sizes are checked above.
            unsafe {
                let scratch = std::slice::from_raw_parts_mut(workers.pointer().add(number * bytes), bytes);
                let dq = std::slice::from_raw_parts_mut(shares.pointer().cast::<f32>().add(task * plan.share()), plan.share());
                Part { op: self, isa, micro, plan, head: task / plan.shares, inputs, outputs }.run(
                    task % plan.shares,
                    &mut plan.worker(micro, scratch),
                    dq,
                );
            }
        });
        if self.query {
            add_shares(micro, &plan, shares, &outputs[0]);
        }
    }
}

/// One head.
struct Part<'a> {
    op: &'a AttentionGrad,
    isa: Isa,
    micro: &'static Micro,
    plan: Plan,
    head: usize,
    inputs: &'a [Tensor<'a>],
    outputs: &'a [Tensor<'a>],
}

impl Part<'_> {
    /// # Safety
    /// The worker is laid out by the plan, `dq` is this task's, and so are the outputs' keys of this share.
    unsafe fn run(&self, share: usize, worker: &mut Worker, dq: &mut [f32]) {
        let plan = &self.plan;
        dq.fill(0.0);
        // SAFETY: as the caller promises.
        unsafe {
            self.pack_queries(worker);
            for block in share * plan.share_blocks..(share + 1) * plan.share_blocks {
                let first = block * plan.keys;
                if first < plan.sizes.keys {
                    self.key_block(worker, dq, first, (plan.sizes.keys - first).min(plan.keys));
                }
            }
        }
    }

    /// Packs what belongs to the queries, once for all blocks of keys.
    ///
    /// # Safety
    /// The worker is laid out by the plan.
    unsafe fn pack_queries(&self, worker: &mut Worker) {
        let (micro, plan) = (self.micro, &self.plan);
        let (sizes, stride) = (&plan.sizes, plan.sizes.stride());
        let sources = [
            (&self.inputs[1], &mut *worker.q_columns, &mut *worker.q_rows),
            (&self.inputs[0], &mut *worker.do_columns, &mut *worker.do_rows),
        ];
        for (tensor, columns, rows) in sources {
            let source = sizes.head(tensor, self.head);
            let left = Left::Rows { source, stride };
            let across = [Term { left, right: Right::Columns { source, stride }, depth: sizes.depth }];
            for first in (0..sizes.queries).step_by(plan.queries) {
                let exist = (sizes.queries - first).min(plan.queries);
                // SAFETY: as the caller promises.
                unsafe {
                    for (column, width, exist) in micro.panels(exist) {
                        let into = columns.as_mut_ptr().add((first + column) * plan.depth_words);
                        let range = first + column..first + column + exist;
                        pack_right(micro, &across, range, width, 0..plan.depth_words, into, worker.spare.as_mut_ptr());
                    }
                    let down = [Term { left, right: Right::rows(source.at(first * stride), stride), depth: exist }];
                    let words = micro.words(exist);
                    for (column, width, exist) in micro.panels(sizes.depth) {
                        let into = rows.as_mut_ptr().add(first / micro.per_word() * sizes.wide() + column * words);
                        pack_right(micro, &down, column..column + exist, width, 0..words, into, worker.spare.as_mut_ptr());
                    }
                }
            }
        }
        let lse = &self.inputs[5].slice::<f32>()[self.head * sizes.queries..(self.head + 1) * sizes.queries];
        worker.lse[..sizes.queries].copy_from_slice(lse);
        // Queries that don't exist: exp(0 − ∞) = 0.
        worker.lse[sizes.queries..].fill(f32::INFINITY);
        worker.delta[sizes.queries..].fill(0.0);
        let start = sizes.head_start(self.head, sizes.queries);
        let delta = &mut worker.delta[..sizes.queries];
        match self.inputs[0].dtype() {
            DType::BF16 => row_products(self.inputs[0].slice::<bf16>(), self.inputs[4].slice::<bf16>(), start, stride, sizes.depth, delta),
            _ => row_products(self.inputs[0].slice::<f32>(), self.inputs[4].slice::<f32>(), start, stride, sizes.depth, delta),
        }
    }

    /// One block of keys against all queries.
    ///
    /// # Safety
    /// As [`Self::run`], with the queries packed.
    unsafe fn key_block(&self, worker: &mut Worker, dq: &mut [f32], first: usize, keys: usize) {
        let (micro, plan) = (self.micro, &self.plan);
        let (sizes, stride) = (&plan.sizes, plan.sizes.stride());
        worker.dk.fill(0.0);
        worker.dv.fill(0.0);
        // SAFETY: as the caller promises.
        unsafe {
            for (tensor, into) in [(&self.inputs[2], &mut *worker.k), (&self.inputs[3], &mut *worker.v)] {
                let source = sizes.head(tensor, self.head);
                let term = [Term { left: Left::Rows { source, stride }, right: Right::rows(source, stride), depth: sizes.depth }];
                pack_left(micro, &term, first..first + keys, 0..plan.depth_words, packed_rows(into, plan.depth_words));
            }
            if self.op.query {
                let k = sizes.head(&self.inputs[2], self.head).at(first * stride);
                let row = row_words(micro.words(plan.keys));
                turn(micro, k, stride, keys, sizes.depth, worker.line, worker.k_turned, row);
            }
            for query in (0..sizes.queries).step_by(plan.queries) {
                let queries = (sizes.queries - query).min(plan.queries);
                if !self.op.attention.causal || first < query + queries {
                    self.query_block(worker, dq, (first, keys), (query, queries));
                }
            }
            if self.op.keys {
                let at = usize::from(self.op.query);
                for (output, sums) in [(&self.outputs[at], &*worker.dk), (&self.outputs[at + 1], &*worker.dv)] {
                    let to = sizes.head(output, self.head).at(first * stride).pointer.cast_mut();
                    match output.dtype() {
                        DType::BF16 => write_rows::<bf16>(sums, sizes.wide(), keys, sizes.depth, to.cast(), stride),
                        _ => write_rows::<f32>(sums, sizes.wide(), keys, sizes.depth, to.cast(), stride),
                    }
                }
            }
        }
    }

    /// One block of keys against one of queries.
    ///
    /// # Safety
    /// As [`Self::key_block`], with the keys packed.
    unsafe fn query_block(
        &self,
        worker: &mut Worker,
        dq: &mut [f32],
        (first_key, keys): (usize, usize),
        (first_query, queries): (usize, usize),
    ) {
        let (micro, plan) = (self.micro, &self.plan);
        let (wide, row, depth) = (plan.sizes.wide(), row_words(plan.depth_words), plan.sizes.depth);
        let columns = first_query * plan.depth_words;
        // SAFETY: as the caller promises.
        unsafe {
            for strip in (0..keys).step_by(micro.rows) {
                let rows = (keys - strip).min(micro.rows);
                let products =
                    [(&*worker.k, &*worker.q_columns, &mut *worker.scores), (&*worker.v, &*worker.do_columns, &mut *worker.slopes)];
                for (left, right, sums) in products {
                    let (a, b) = (left.as_ptr().add(strip * row), right.as_ptr().add(columns));
                    multiply(micro, (a, row), rows, b, plan.depth_words, (sums.as_mut_ptr(), plan.queries), queries, false);
                }
                let strip = Slopes {
                    scores: worker.scores,
                    slopes: worker.slopes,
                    stride: plan.queries,
                    rows: (strip, rows),
                    queries,
                    lse: &worker.lse[first_query..],
                    delta: &worker.delta[first_query..],
                    scale: self.op.attention.scale,
                    // Queries of the block that don't see the first key of the strip; one more for each further key.
                    blind: if self.op.attention.causal { (first_key + strip) as isize - first_query as isize } else { isize::MIN / 2 },
                    words: micro.words(keys),
                };
                let (p, ds) = (worker.p.as_mut_ptr(), worker.ds.as_mut_ptr());
                match (self.isa, micro.packed) {
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx512Bf16, DType::BF16) => avx512::slopes(strip, p.cast(), ds.cast(), worker.ds_panels.as_mut_ptr()),
                    (_, DType::BF16) => slopes::<bf16>(strip, p.cast(), ds.cast()),
                    _ => slopes::<f32>(strip, p.cast(), ds.cast()),
                }
            }
            let words = micro.words(queries);
            if self.op.keys {
                let stride = plan.queries / micro.per_word();
                let rows = first_query / micro.per_word() * wide;
                let products = [(&*worker.ds, &*worker.q_rows, &mut *worker.dk), (&*worker.p, &*worker.do_rows, &mut *worker.dv)];
                for (left, right, sums) in products {
                    multiply(micro, (left.as_ptr(), stride), keys, right.as_ptr().add(rows), words, (sums.as_mut_ptr(), wide), depth, true);
                }
            }
            if self.op.query {
                let words = micro.words(keys);
                // The bf16 path has written them already.
                if micro.packed != DType::BF16 {
                    self.pack_slopes(worker, keys, queries);
                }
                let turned = (worker.k_turned.as_ptr(), row_words(micro.words(plan.keys)));
                let sums = (dq.as_mut_ptr().add(first_query), plan.padded);
                multiply(micro, turned, depth, worker.ds_panels.as_ptr(), words, sums, queries, true);
            }
        }
    }
}

impl Part<'_> {
    /// Packs ∂Sᵀ as a right operand.
    ///
    /// # Safety
    /// The worker holds ∂Sᵀ of these keys and queries.
    unsafe fn pack_slopes(&self, worker: &mut Worker, keys: usize, queries: usize) {
        let source = Source { pointer: worker.ds.as_ptr().cast(), dtype: self.micro.packed };
        let (stride, words) = (self.plan.queries, self.micro.words(keys));
        let term = [Term { left: Left::Rows { source, stride }, right: Right::rows(source, stride), depth: keys }];
        for (column, width, exist) in self.micro.panels(queries) {
            // SAFETY: as the caller promises.
            unsafe {
                let into = worker.ds_panels.as_mut_ptr().add(column * words);
                pack_right(self.micro, &term, column..column + exist, width, 0..words, into, worker.spare.as_mut_ptr());
            }
        }
    }
}

/// A strip of Sᵀ and ∂Pᵀ on the way to Pᵀ and ∂Sᵀ.
pub struct Slopes<'a> {
    pub scores: &'a [f32],
    pub slopes: &'a [f32],
    pub stride: usize,
    /// First row in Pᵀ, and their number.
    pub rows: (usize, usize),
    pub queries: usize,
    pub lse: &'a [f32],
    pub delta: &'a [f32],
    pub scale: f32,
    pub blind: isize,
    /// Words of a column of the panels of ∂Sᵀ.
    pub words: usize,
}

vectorize! {
    /// Pᵀ = exp(scale · Sᵀ − L) and ∂Sᵀ = scale · Pᵀ ∘ (∂Pᵀ − δ), rounded.
    fn slopes<P: Element>(strip: Slopes, p: *mut P, ds: *mut P) {
        let padded = strip.queries.next_multiple_of(LANES);
        for r in 0..strip.rows.1 {
            let blind = strip.blind + r as isize;
            let from = r * strip.stride;
            let to = (strip.rows.0 + r) * strip.stride;
            for c in (0..padded).step_by(LANES) {
                let scores: &[f32; LANES] = strip.scores[from + c..from + c + LANES].try_into().expect("16 scores");
                let slopes: &[f32; LANES] = strip.slopes[from + c..from + c + LANES].try_into().expect("16 slopes");
                let lse: &[f32; LANES] = strip.lse[c..c + LANES].try_into().expect("whole blocks");
                let delta: &[f32; LANES] = strip.delta[c..c + LANES].try_into().expect("whole blocks");
                // SAFETY: P and ∂S have whole blocks of rows of `stride` elements.
                let (p, ds) = unsafe { (&mut *p.add(to + c).cast::<[P; LANES]>(), &mut *ds.add(to + c).cast::<[P; LANES]>()) };
                for i in 0..LANES {
                    let seen = (c + i) as isize >= blind;
                    let e = exp(scores[i] * strip.scale - lse[i]);
                    p[i] = P::from_f32(if seen { e } else { 0.0 });
                    ds[i] = P::from_f32(if seen { strip.scale * e * (slopes[i] - delta[i]) } else { 0.0 });
                }
            }
        }
    }
}

vectorize! {
    /// Σ over a row of a·b, for rows of `depth` elements that begin at `start`, `stride` apart.
    fn row_products<T: Element>(a: &[T], b: &[T], start: usize, stride: usize, depth: usize, into: &mut [f32]) {
        for (i, into) in into.iter_mut().enumerate() {
            let row = start + i * stride..start + i * stride + depth;
            let (a, b) = (&a[row.clone()], &b[row]);
            let mut sums = [0.0f32; LANES];
            let (whole, rest) = (a.chunks_exact(LANES).zip(b.chunks_exact(LANES)), depth / LANES * LANES);
            for (a, b) in whole {
                for l in 0..LANES {
                    sums[l] += a[l].to_f32() * b[l].to_f32();
                }
            }
            let tail: f32 = a[rest..].iter().zip(&b[rest..]).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
            *into = sums.iter().sum::<f32>() + tail;
        }
    }
}

/// Writes the transpose of `rows` rows of `depth` floats as a packed left operand [depth, row_stride].
///
/// # Safety
/// The rows exist, and `into` has room.
#[allow(clippy::too_many_arguments)]
unsafe fn turn(
    micro: &Micro,
    from: Source,
    stride: usize,
    rows: usize,
    depth: usize,
    line: &mut [f32],
    into: &mut [u32],
    row_stride: usize,
) {
    let per_word = micro.per_word();
    for r in 0..rows {
        // SAFETY: as the caller promises; a packed bf16 row of `depth` fits into `line`.
        unsafe {
            convert(from.at(r * stride), depth, micro.packed, line.as_mut_ptr().cast());
            for c in 0..depth {
                let word = into.as_mut_ptr().add(c * row_stride + r / per_word);
                if per_word == 2 {
                    let value = line.as_ptr().cast::<u16>().add(c).read();
                    word.cast::<u16>().add(r % 2).write(value);
                    if r + 1 == rows && r % 2 == 0 {
                        word.cast::<u16>().add(1).write(0);
                    }
                } else {
                    word.write(line[c].to_bits());
                }
            }
        }
    }
}

vectorize! {
    /// Rounds rows of sums to an output.
    fn write_rows<T: Element>(sums: &[f32], wide: usize, rows: usize, depth: usize, to: *mut T, stride: usize) {
        for r in 0..rows {
            for (c, sum) in sums[r * wide..r * wide + depth].iter().enumerate() {
                // SAFETY: the caller owns these rows of the output.
                unsafe { to.add(r * stride + c).write(T::from_f32(*sum)) };
            }
        }
    }
}

/// ∂Q = the sum of the shares' ∂Qᵀ, turned.
fn add_shares(micro: &Micro, plan: &Plan, shares: Shared, dq: &Tensor) {
    let sizes = &plan.sizes;
    let blocks = sizes.queries.div_ceil(plan.queries);
    threads::for_each(sizes.batch * sizes.heads * blocks, |task, _| {
        let (head, first) = (task / blocks, task % blocks * plan.queries);
        let to = sizes.head(dq, head).pointer.cast_mut();
        let count = (sizes.queries - first).min(plan.queries);
        // SAFETY: all shares were written before; these rows of ∂Q, and these columns of the shares, are this task's alone.
        unsafe {
            let from = shares.pointer().cast::<f32>().add(head * plan.shares * plan.share() + first);
            match dq.dtype() {
                DType::BF16 => turn_shares::<bf16>(micro, plan, from, count, to.cast::<bf16>().add(first * sizes.stride())),
                _ => turn_shares::<f32>(micro, plan, from, count, to.cast::<f32>().add(first * sizes.stride())),
            }
        }
    });
}

vectorize! {
    /// Adds the shares up in the first, 16 channels at a time, and writes them with channels last.
    fn turn_shares<T: Element>(micro: &Micro, plan: &Plan, from: *mut f32, queries: usize, to: *mut T) {
        let mut turned = [0.0f32; QUERIES * LANES];
        for c in (0..plan.sizes.depth).step_by(LANES) {
            let channels = (plan.sizes.depth - c).min(LANES);
            // SAFETY: by the caller's promise; blocks have at most QUERIES queries.
            unsafe {
                for row in 0..channels {
                    let sum = from.add((c + row) * plan.padded);
                    for share in 1..plan.shares {
                        (0..queries).for_each(|i| *sum.add(i) += *sum.add(share * plan.share() + i));
                    }
                }
                let from = from.add(c * plan.padded).cast_const().cast();
                let into = turned.as_mut_ptr().cast();
                (micro.transpose)(&Transpose { from, from_stride: plan.padded * 4, rows: channels, words: queries, into, into_stride: LANES });
                for i in 0..queries {
                    for l in 0..channels {
                        to.add(i * plan.sizes.stride() + c + l).write(T::from_f32(turned[i * LANES + l]));
                    }
                }
            }
        }
    }
}
