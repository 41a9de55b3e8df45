//! What a device must offer. A backend only executes: it allocates when a session is built, never in a step, and decides nothing.

use anyhow::Result;
use graph::{Meta, Op};

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

    /// Bytes allocated now, over all buffers.
    fn allocated_bytes(&self) -> u64;
}
