//! ∂Q, ∂K, ∂V from P = exp(scale · S − L), computed again block by block.
//!
//! A task is one head and a share of its keys; it walks blocks of keys, and for each all queries, with transposed scores Sᵀ = K Qᵀ: then
//! Pᵀ and ∂Sᵀ are the left operands of ∂V and ∂K as they stand, and ∂Sᵀ the right one of ∂Qᵀ = Kᵀ ∂Sᵀ. Five products in one walk. What
//! different shares of keys give to ∂Q is kept apart and added in order at the end, so results don't depend on the number of threads.

mod plan;
mod rows;
mod shares;
mod slopes;

use super::super::matmul::Shared;
use super::super::matmul::micro::{LANES, Micro};
use super::super::matmul::operand::{Left, Right, Source, Term};
use super::super::matmul::pack::{pack_left, pack_panels};
use super::super::{Call, Kernel};
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::{Panels, Rows, Sizes, multiply, packed_rows, row_words};
use crate::isa::{Isa, isa};
use crate::tensor::Tensor;
use crate::threads;
use base::DType;
use graph::Meta;
use graph::ops::AttentionGrad;
use half::{bf16, f16};
use plan::{Packed, Plan, QUERIES, Worker};
use rows::{row_products, turn, write_rows};
use shares::add_shares;
pub use slopes::Slopes;

/// Units of columns that have none.
static ONES: [f32; QUERIES] = [1.0; QUERIES];

impl Kernel for AttentionGrad {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let micro = Micro::of(isa(), inputs[0].dtype);
        let plan = Plan::new(micro, Sizes::new(self.attention.heads, &inputs[1].shape, &inputs[2].shape));
        (plan.shares_bytes() + plan.worker_bytes(micro) * threads::count()) as u64
    }

    fn run(&self, call: &mut Call) {
        let (q, k) = (&call.inputs[1], &call.inputs[2]);
        let isa = isa();
        let micro = Micro::of(isa, q.dtype());
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
        let sources =
            [(&self.inputs[1], &mut worker.q_columns, &mut worker.q_rows), (&self.inputs[0], &mut worker.do_columns, &mut worker.do_rows)];
        let spare = worker.spare.as_mut_ptr();
        for (tensor, columns, rows) in sources {
            let source = sizes.head(tensor, self.head);
            let left = Left::Rows { source, stride };
            let across = Term { left, right: Right::Columns { source, stride }, depth: sizes.depth };
            for first in (0..sizes.queries).step_by(plan.queries) {
                let exist = (sizes.queries - first).min(plan.queries);
                let down = Term { left, right: Right::rows(source.at(first * stride), stride), depth: exist };
                // SAFETY: as the caller promises.
                unsafe {
                    let into = columns.words.as_mut_ptr().add(first * plan.depth_words);
                    pack_panels(
                        micro,
                        &[across],
                        first..first + exist,
                        0..plan.depth_words,
                        into,
                        columns.units.as_mut_ptr().add(first),
                        spare,
                    );
                    let into = rows.words.as_mut_ptr().add(self.query_rows(first));
                    let units = rows.units.as_mut_ptr().add(first / plan.queries * sizes.wide());
                    pack_panels(micro, &[down], 0..sizes.depth, 0..micro.words(exist), into, units, spare);
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
            DType::F16 => row_products(self.inputs[0].slice::<f16>(), self.inputs[4].slice::<f16>(), start, stride, sizes.depth, delta),
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
            for (tensor, into) in [(&self.inputs[2], &mut worker.k), (&self.inputs[3], &mut worker.v)] {
                let source = sizes.head(tensor, self.head);
                let term = [Term { left: Left::Rows { source, stride }, right: Right::rows(source, stride), depth: sizes.depth }];
                let into = packed_rows(into.words, plan.depth_words, into.units);
                pack_left(micro, &term, first..first + keys, 0..plan.depth_words, into);
            }
            if self.op.query {
                self.turn_keys(worker, first, keys);
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
                        DType::F16 => write_rows::<f16>(sums, sizes.wide(), keys, sizes.depth, to.cast(), stride),
                        _ => write_rows::<f32>(sums, sizes.wide(), keys, sizes.depth, to.cast(), stride),
                    }
                }
            }
        }
    }

    /// Kᵀ of a block: packed, or in floats that get their units with each block of queries.
    ///
    /// # Safety
    /// As [`Self::key_block`].
    unsafe fn turn_keys(&self, worker: &mut Worker, first: usize, keys: usize) {
        let (micro, sizes) = (self.micro, &self.plan.sizes);
        let k = sizes.head(&self.inputs[2], self.head).at(first * sizes.stride());
        // SAFETY: as the caller promises.
        unsafe {
            if micro.fixed.is_some() {
                let into = bytemuck::cast_slice_mut(worker.k_floats);
                turn(DType::F32, k, sizes.stride(), keys, sizes.depth, worker.line, into, self.float_row());
            } else {
                let row = row_words(micro.words(self.plan.keys));
                turn(micro.packed, k, sizes.stride(), keys, sizes.depth, worker.line, worker.k_turned.words, row);
                self.fill_turned(worker, keys, row);
            }
        }
    }

    /// Zeros behind the last key, in rows of Kᵀ.
    ///
    /// # Safety
    /// The worker holds Kᵀ in rows of `row` words.
    unsafe fn fill_turned(&self, worker: &mut Worker, keys: usize, row: usize) {
        let (words, filled) = (self.micro.words(keys), keys.div_ceil(self.micro.per_word()));
        for c in 0..self.plan.sizes.depth {
            // SAFETY: as the caller promises.
            unsafe { worker.k_turned.words.as_mut_ptr().add(c * row + filled).write_bytes(0, words - filled) };
        }
    }

    /// Floats from row to row of Kᵀ.
    fn float_row(&self) -> usize {
        self.plan.keys.next_multiple_of(LANES)
    }

    /// Where the panels of Q and ∂O begin that belong to a block of queries.
    fn query_rows(&self, first_query: usize) -> usize {
        first_query / self.micro.per_word() * self.plan.sizes.wide()
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
        // SAFETY: as the caller promises.
        unsafe {
            for strip in (0..keys).step_by(micro.rows) {
                self.strip(worker, (strip, (keys - strip).min(micro.rows)), (first_key, keys), (first_query, queries));
            }
            if self.op.keys {
                let (wide, stride) = (plan.sizes.wide(), plan.queries / micro.per_word());
                let products = [(&worker.ds, &worker.q_rows, &mut *worker.dk), (&worker.p, &worker.do_rows, &mut *worker.dv)];
                for (left, right, sums) in products {
                    let right = Panels {
                        packed: right.words.as_ptr().add(self.query_rows(first_query)),
                        words: micro.words(queries),
                        units: right.units.as_ptr().add(first_query / plan.queries * wide),
                    };
                    let left = Rows::new(left.words, stride, left.units);
                    multiply(micro, left, keys, right, (sums.as_mut_ptr(), wide), plan.sizes.depth, true);
                }
            }
            if self.op.query {
                self.add_dq(worker, dq, keys, (first_query, queries));
            }
        }
    }

    /// Rows (first, count) of a block of keys against a block of queries: Pᵀ and ∂Sᵀ.
    ///
    /// # Safety
    /// As [`Self::query_block`].
    unsafe fn strip(
        &self,
        worker: &mut Worker,
        (first, rows): (usize, usize),
        (first_key, keys): (usize, usize),
        (first_query, queries): (usize, usize),
    ) {
        let (micro, plan) = (self.micro, &self.plan);
        // SAFETY: as the caller promises.
        unsafe {
            let products = [(&worker.k, &worker.q_columns, &mut *worker.scores), (&worker.v, &worker.do_columns, &mut *worker.slopes)];
            for (left, right, sums) in products {
                let left = Rows::new(left.words, row_words(plan.depth_words), left.units).from(first);
                let packed = right.words.as_ptr().add(first_query * plan.depth_words);
                let right = Panels { packed, words: plan.depth_words, units: right.units.as_ptr().add(first_query) };
                multiply(micro, left, rows, right, (sums.as_mut_ptr(), plan.queries), queries, false);
            }
            let strip = Slopes {
                scores: &mut *worker.scores,
                slopes: &mut *worker.slopes,
                stride: plan.queries,
                rows: (first, rows),
                queries,
                filled: (micro.words(queries) * micro.per_word()).next_multiple_of(LANES),
                lse: &worker.lse[first_query..],
                delta: &worker.delta[first_query..],
                scale: self.op.attention.scale,
                // Queries of the block that don't see the first key of the strip; one more for each further key.
                blind: if self.op.attention.causal { (first_key + first) as isize - first_query as isize } else { isize::MIN / 2 },
                words: micro.words(keys),
            };
            let (p, ds) = (worker.p.words.as_mut_ptr(), worker.ds.words.as_mut_ptr());
            match (self.isa, micro.packed) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512Vnni, DType::BF16) => {
                    let units = [&mut *worker.p.units, &mut *worker.ds.units];
                    avx512::slopes_fixed(strip, [p.cast(), ds.cast()], worker.ds_panels.as_mut_ptr(), units);
                }
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512Bf16 | Isa::Amx, DType::BF16) => avx512::slopes(strip, p.cast(), ds.cast(), worker.ds_panels.as_mut_ptr()),
                (_, DType::BF16) => unreachable!("bf16 words are AVX-512's"),
                _ => slopes::slopes::<f32>(strip, p.cast(), ds.cast()),
            }
        }
    }

    /// ∂Qᵀ += Kᵀ ∂Sᵀ. In fixed point ∂Sᵀ has units by key, along the reduction: they go into Kᵀ.
    ///
    /// # Safety
    /// The worker holds ∂Sᵀ of these keys and queries.
    unsafe fn add_dq(&self, worker: &mut Worker, dq: &mut [f32], keys: usize, (first_query, queries): (usize, usize)) {
        let (micro, plan) = (self.micro, &self.plan);
        let row = row_words(micro.words(plan.keys));
        // SAFETY: as the caller promises.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if micro.fixed.is_some() {
                let Packed { words, units } = &mut worker.k_turned;
                avx512::scale_rows((worker.k_floats, self.float_row()), keys, &worker.ds.units[..keys], (words.as_mut_ptr(), row), units);
            }
            if micro.packed == DType::BF16 {
                self.fill_slopes(worker, keys, queries);
            } else {
                self.pack_slopes(worker, keys, queries);
            }
            let turned = Rows::new(worker.k_turned.words, row, worker.k_turned.units);
            let right = Panels { packed: worker.ds_panels.as_ptr(), words: micro.words(keys), units: ONES.as_ptr() };
            // Rows beyond the channels hold anything, and end in rows that nobody reads.
            multiply(micro, turned, plan.dq_rows, right, (dq.as_mut_ptr().add(first_query), plan.dq_stride), queries, true);
        }
    }

    /// Zeros behind the last key, in the panels of ∂Sᵀ that the bf16 paths have written while they made it.
    ///
    /// # Safety
    /// As [`Self::add_dq`].
    unsafe fn fill_slopes(&self, worker: &mut Worker, keys: usize, queries: usize) {
        let (words, filled) = (self.micro.words(keys), keys.div_ceil(2));
        for (column, width, _) in self.micro.panels(queries) {
            // SAFETY: as the caller promises.
            unsafe { worker.ds_panels.as_mut_ptr().add(column * words + filled * width).write_bytes(0, (words - filled) * width) };
        }
    }

    /// Packs ∂Sᵀ as a right operand.
    ///
    /// # Safety
    /// As [`Self::add_dq`].
    unsafe fn pack_slopes(&self, worker: &mut Worker, keys: usize, queries: usize) {
        let source = Source::plain(worker.ds.words.as_ptr().cast(), self.micro.packed);
        let stride = self.plan.queries;
        let term = Term { left: Left::Rows { source, stride }, right: Right::rows(source, stride), depth: keys };
        // SAFETY: as the caller promises; these words are not in fixed point.
        unsafe {
            let units = worker.ds.units.as_mut_ptr();
            pack_panels(
                self.micro,
                &[term],
                0..queries,
                0..self.micro.words(term.depth),
                worker.ds_panels.as_mut_ptr(),
                units,
                worker.spare.as_mut_ptr(),
            );
        }
    }
}
