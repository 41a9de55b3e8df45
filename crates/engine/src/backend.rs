//! What a device must offer. A backend only executes: it allocates when a session is built, never in a step, and decides nothing.

use crate::speed::Speed;
use anyhow::Result;
use base::DType;
use graph::{Meta, Op};
use std::time::Instant;

/// A block of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub u32);

/// A tensor in device memory: `meta` at byte `offset` of `buffer`.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub buffer: BufferId,
    pub offset: u64,
    pub meta: Meta,
}

/// One op, bound to memory.
#[derive(Clone, Debug)]
pub struct Step {
    pub op: Op,
    pub inputs: Vec<View>,
    /// Outputs from `op.rule().accumulates_from()` on are added into; the others are overwritten, whatever they held.
    pub outputs: Vec<View>,
    /// Bytes that the kernel may use while it runs: at least what [`Backend::scratch_bytes`] said.
    pub scratch: Scratch,
}

#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    pub buffer: BufferId,
    pub offset: u64,
    pub bytes: u64,
}

/// Writes all bytes of a range of memory.
pub type Fill<'a> = &'a mut (dyn FnMut(&mut [u8]) -> Result<()> + Send);

/// A device. Output 0 may share its bytes with an input that the op names in `in_place`; other views never overlap an output.
pub trait Backend {
    /// `cpu`, with what it found (for the run's first lines).
    fn describe(&self) -> String;

    /// Bytes of scratch that the kernel of `op` needs at these shapes.
    fn scratch_bytes(&self, op: &Op, inputs: &[&Meta], outputs: &[&Meta]) -> u64;

    /// Reserves a zeroed block. An error says how much was asked for.
    fn allocate(&mut self, bytes: u64) -> Result<BufferId>;

    fn free(&mut self, buffer: BufferId);

    /// Copies host bytes to the device.
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Lets `fill` make the bytes of a range: in their place where the device's memory is the host's, and on the device's own threads if
    /// it has any and `fill` is parallel.
    fn fill(&mut self, buffer: BufferId, offset: u64, bytes: u64, fill: Fill) -> Result<()> {
        let mut staged = vec![0; usize::try_from(bytes)?];
        fill(&mut staged)?;
        self.write(buffer, offset, &staged)
    }

    /// Copies device bytes to the host, after everything submitted before.
    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Zeroes a range.
    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<()>;

    /// Runs (or submits) one step.
    fn run(&mut self, step: &Step) -> Result<()>;

    /// Runs (or submits) steps in order: what a device can do at once for a whole program, it does here.
    fn run_all(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.run(step))
    }

    /// Like [`Backend::run_all`], and says how many seconds each step took. Only measurements call it: training pays nothing for it.
    fn run_timed(&mut self, steps: &[Step], seconds: &mut [f64]) -> Result<()> {
        for (step, seconds) in steps.iter().zip(seconds) {
            let began = Instant::now();
            self.run(step)?;
            *seconds = began.elapsed().as_secs_f64();
        }
        Ok(())
    }

    /// What this device can do at most, measured now: multiply-adds as its kernels do them on activations of `dtype`, and memory.
    fn measure_speed(&self, dtype: DType) -> Result<Speed>;

    /// What kernels usually reach on such a device, from a table: the same in every run, so that plans don't depend on the hour.
    fn typical_speed(&self, dtype: DType) -> Speed;

    /// Bytes allocated now, over all buffers.
    fn allocated_bytes(&self) -> u64;
}
