//! The CPU as a device: buffers in host memory, and a thread pool that kernels run on.

use crate::isa::Isa;
use crate::kernels::{Call, Kernel, kernel};
use crate::memory::Block;
use crate::speed;
use crate::tensor::Tensor;
use crate::threads;
use anyhow::{Context, Result, bail, ensure};
use base::DType;
use engine::backend::{Fill, Scratch, Step};
use engine::{Backend, BufferId, Speed, View};
use graph::{Meta, Op};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::time::Instant;

/// The most inputs and outputs that an op may have here: their lists live on the stack.
const MOST_INPUTS: usize = 8;
const MOST_OUTPUTS: usize = 4;

/// The CPU backend.
pub struct Cpu {
    pool: ThreadPool,
    isa: Isa,
    buffers: Vec<Option<Block>>,
}

impl Cpu {
    /// With as many threads as `VELATURA_THREADS` says, else as the machine offers this process.
    pub fn new() -> Result<Cpu> {
        let threads = match std::env::var("VELATURA_THREADS") {
            Ok(text) => match text.parse() {
                Ok(threads) if threads > 0 => threads,
                _ => bail!("VELATURA_THREADS is {text:?}; set it to a number of threads (1 or more), or unset it"),
            },
            Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Cpu::with_threads(threads)
    }

    pub fn with_threads(threads: usize) -> Result<Cpu> {
        Cpu::with_isa(threads, Isa::chosen()?)
    }

    /// With kernels of one instruction set, which the machine must have: tests walk them all.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Cpu> {
        ensure!(Isa::available().contains(&isa), "this machine has no {}", isa.name());
        let named = |i| format!("velatura-cpu-{i}");
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(named).start_handler(move |_| isa.keep()).build();
        Ok(Cpu { pool: pool.with_context(|| format!("cannot start {threads} threads"))?, isa, buffers: Vec::new() })
    }

    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    fn block(&self, buffer: BufferId) -> Result<&Block> {
        let slot = self.buffers.get(buffer.0 as usize);
        slot.and_then(Option::as_ref).with_context(|| format!("there is no buffer {}", buffer.0))
    }

    fn tensor<'a>(&self, view: &'a View) -> Result<Tensor<'a>> {
        let block = self.block(view.buffer)?;
        check_range(block, view.buffer, view.offset, view.meta.bytes())?;
        let aligned = view.offset.is_multiple_of(view.meta.dtype.alignment() as u64);
        ensure!(aligned, "a {} tensor at byte {} of buffer {} is not aligned", view.meta.dtype, view.offset, view.buffer.0);
        // SAFETY: in range of a live block and aligned, by the checks above; blocks live as long as `self`.
        Ok(unsafe { Tensor::new(block.pointer().add(view.offset as usize), &view.meta) })
    }

    fn scratch(&self, scratch: &Scratch) -> Result<(*mut u8, usize)> {
        if scratch.bytes == 0 {
            return Ok((std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), 0));
        }
        let block = self.block(scratch.buffer)?;
        check_range(block, scratch.buffer, scratch.offset, scratch.bytes)?;
        ensure!(scratch.offset.is_multiple_of(graph::plan::ALIGNMENT), "scratch at byte {} is not aligned", scratch.offset);
        // SAFETY: in range by the check above.
        Ok((unsafe { block.pointer().add(scratch.offset as usize) }, scratch.bytes as usize))
    }

    /// Checks a step and runs its kernel on this thread, which is one of the pool's. The caller holds `self` mutably, so nobody else
    /// looks at the buffers.
    fn run_here(&self, step: &Step) -> Result<()> {
        let inputs: [Tensor; MOST_INPUTS] = self.tensors(&step.inputs)?;
        let outputs: [Tensor; MOST_OUTPUTS] = self.tensors(&step.outputs)?;
        let (scratch, scratch_bytes) = self.scratch(&step.scratch)?;
        check_overlaps(step)?;
        let (inputs, outputs) = (&inputs[..step.inputs.len()], &outputs[..step.outputs.len()]);
        let kernel = kernel(&step.op);
        kernel.check(inputs)?;
        let needed = scratch_needed(kernel, inputs, outputs);
        ensure!(needed <= scratch_bytes as u64, "{scratch_bytes} bytes of scratch, but {needed} are needed");
        // SAFETY: in range and overlapping nothing, by the checks above.
        let scratch = unsafe { std::slice::from_raw_parts_mut(scratch, scratch_bytes) };
        kernel.run(&mut Call { inputs, outputs, scratch });
        Ok(())
    }

    /// The tensors of `views`, in the first places of a fixed array.
    fn tensors<'a, const N: usize>(&self, views: &'a [View]) -> Result<[Tensor<'a>; N]> {
        let first = self.tensor(views.first().context("an op without inputs or outputs")?)?;
        ensure!(views.len() <= N, "an op with {} inputs or outputs; {N} is the most", views.len());
        let mut all = [first; N];
        for (slot, view) in all.iter_mut().zip(views) {
            *slot = self.tensor(view)?;
        }
        Ok(all)
    }
}

fn range_mut(buffers: &mut [Option<Block>], buffer: BufferId, offset: u64, bytes: u64) -> Result<&mut [u8]> {
    let slot = buffers.get_mut(buffer.0 as usize).and_then(Option::as_mut);
    let block = slot.with_context(|| format!("there is no buffer {}", buffer.0))?;
    check_range(block, buffer, offset, bytes)?;
    Ok(&mut block.as_mut_slice()[offset as usize..(offset + bytes) as usize])
}

fn check_range(block: &Block, buffer: BufferId, offset: u64, bytes: u64) -> Result<()> {
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= block.bytes());
    ensure!(inside, "bytes {offset} to {offset}+{bytes} leave buffer {}, which has {}", buffer.0, block.bytes());
    Ok(())
}

/// Bytes of scratch that a bound kernel needs; as `scratch_bytes`, without a list on the heap.
fn scratch_needed(kernel: &dyn Kernel, inputs: &[Tensor], outputs: &[Tensor]) -> u64 {
    let mut metas = [outputs[0].meta; MOST_INPUTS + MOST_OUTPUTS];
    metas.iter_mut().zip(inputs.iter().chain(outputs)).for_each(|(meta, tensor)| *meta = tensor.meta);
    let (before, after) = metas[..inputs.len() + outputs.len()].split_at(inputs.len());
    kernel.scratch_bytes(before, after)
}

/// Bytes of a buffer that a step touches.
struct Touched {
    buffer: BufferId,
    start: u64,
    end: u64,
}

impl Touched {
    fn by(view: &View) -> Touched {
        Touched { buffer: view.buffer, start: view.offset, end: view.offset + view.meta.bytes() }
    }

    fn by_scratch(scratch: &Scratch) -> Touched {
        Touched { buffer: scratch.buffer, start: scratch.offset, end: scratch.offset + scratch.bytes }
    }

    fn overlaps(&self, other: &Touched) -> bool {
        let empty = self.start == self.end || other.start == other.end;
        !empty && self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// Outputs and scratch must not overlap anything, except output 0 the very bytes of an input that it may take over.
fn check_overlaps(step: &Step) -> Result<()> {
    let in_place = step.op.rule().in_place();
    let scratch = Touched::by_scratch(&step.scratch);
    for (o, output) in step.outputs.iter().enumerate() {
        let written = Touched::by(output);
        for (i, input) in step.inputs.iter().enumerate() {
            let same = input.buffer == output.buffer && input.offset == output.offset && input.meta.bytes() == output.meta.bytes();
            let may_share = same && (o == 0 && in_place.contains(&i) || matches!(step.op, Op::Reshape(_)));
            ensure!(may_share || !written.overlaps(&Touched::by(input)), "output {o} overlaps input {i}");
        }
        let others = step.outputs[..o].iter().map(Touched::by);
        ensure!(
            !others.chain([Touched::by_scratch(&step.scratch)]).any(|t| t.overlaps(&written)),
            "output {o} overlaps scratch or another output"
        );
    }
    ensure!(!step.inputs.iter().any(|v| Touched::by(v).overlaps(&scratch)), "scratch overlaps an input");
    Ok(())
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        format!("cpu: {} threads, {}", self.threads(), self.isa.name())
    }

    fn scratch_bytes(&self, op: &Op, inputs: &[&Meta], outputs: &[&Meta]) -> u64 {
        // As on one of the pool's threads.
        self.isa.with(|| threads::stated(self.threads(), || kernel(op).scratch_bytes(inputs, outputs)))
    }

    fn allocate(&mut self, bytes: u64) -> Result<BufferId> {
        let block = Block::new(bytes)?;
        let id = self.buffers.iter().position(Option::is_none).unwrap_or(self.buffers.len());
        if id == self.buffers.len() {
            self.buffers.push(None);
        }
        self.buffers[id] = Some(block);
        Ok(BufferId(id as u32))
    }

    fn free(&mut self, buffer: BufferId) {
        if let Some(slot) = self.buffers.get_mut(buffer.0 as usize) {
            *slot = None;
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        range_mut(&mut self.buffers, buffer, offset, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }

    fn fill(&mut self, buffer: BufferId, offset: u64, bytes: u64, fill: Fill) -> Result<()> {
        let range = range_mut(&mut self.buffers, buffer, offset, bytes)?;
        self.pool.install(|| fill(range))
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let block = self.block(buffer)?;
        check_range(block, buffer, offset, bytes.len() as u64)?;
        bytes.copy_from_slice(&block.as_slice()[offset as usize..offset as usize + bytes.len()]);
        Ok(())
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<()> {
        range_mut(&mut self.buffers, buffer, offset, bytes)?.fill(0);
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<()> {
        self.run_all(std::slice::from_ref(step))
    }

    fn run_all(&mut self, steps: &[Step]) -> Result<()> {
        // One way into the pool and back: small steps then cost no change of threads.
        let cpu = &*self;
        cpu.pool.install(|| steps.iter().try_for_each(|step| cpu.run_here(step).with_context(|| step.op.name())))
    }

    fn run_timed(&mut self, steps: &[Step], seconds: &mut [f64]) -> Result<()> {
        let cpu = &*self;
        let timed = |(step, seconds): (&Step, &mut f64)| {
            let began = Instant::now();
            cpu.run_here(step).with_context(|| step.op.name())?;
            *seconds = began.elapsed().as_secs_f64();
            Ok(())
        };
        cpu.pool.install(|| steps.iter().zip(seconds).try_for_each(timed))
    }

    fn measure_speed(&self, dtype: DType) -> Result<Speed> {
        speed::measure(&self.pool, self.isa.multiplying(dtype))
    }

    fn typical_speed(&self, dtype: DType) -> Speed {
        speed::typical(self.threads(), self.isa.multiplying(dtype))
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.iter().flatten().map(Block::bytes).sum()
    }
}
