//! A backend that runs the oracle in plain memory: with it, tests of plans depend on no kernel.

use crate::values::{decode, encode};
use anyhow::{Context, Result, bail};
use base::DType;
use engine::backend::Step;
use engine::{Backend, BufferId, Speed, View};
use graph::{Array, Meta, Op};

/// The oracle as a backend. It asks for `scratch_bytes` of scratch at every op, and fills it with NaN.
pub struct OracleBackend {
    pub scratch_bytes: u64,
    buffers: Vec<Vec<u8>>,
}

impl OracleBackend {
    pub fn new(scratch_bytes: u64) -> OracleBackend {
        OracleBackend { scratch_bytes, buffers: Vec::new() }
    }

    fn range(&self, buffer: BufferId, offset: u64, bytes: u64) -> Result<&[u8]> {
        self.buffers[buffer.0 as usize].get(offset as usize..(offset + bytes) as usize).context("outside of a buffer")
    }

    fn array(&self, view: &View) -> Result<Array> {
        Ok(decode(&view.meta, self.range(view.buffer, view.offset, view.meta.bytes())?))
    }
}

impl Backend for OracleBackend {
    fn describe(&self) -> String {
        "oracle".into()
    }

    fn scratch_bytes(&self, _: &Op, _: &[&Meta], _: &[&Meta]) -> u64 {
        self.scratch_bytes
    }

    fn allocate(&mut self, bytes: u64) -> Result<BufferId> {
        self.buffers.push(vec![0; bytes as usize]);
        Ok(BufferId(self.buffers.len() as u32 - 1))
    }

    fn free(&mut self, buffer: BufferId) {
        self.buffers[buffer.0 as usize] = Vec::new();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        let target = self.buffers[buffer.0 as usize].get_mut(offset as usize..offset as usize + bytes.len());
        target.context("outside of a buffer")?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(self.range(buffer, offset, bytes.len() as u64)?);
        Ok(())
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<()> {
        self.write(buffer, offset, &vec![0; bytes as usize])
    }

    fn run(&mut self, step: &Step) -> Result<()> {
        let inputs = step.inputs.iter().map(|v| self.array(v)).collect::<Result<Vec<Array>>>()?;
        let results = step.op.rule().evaluate(&inputs.iter().collect::<Vec<_>>());
        self.write(step.scratch.buffer, step.scratch.offset, &vec![0xff; step.scratch.bytes as usize])?;
        for (i, (view, result)) in step.outputs.iter().zip(results).enumerate() {
            let sum = if i >= step.op.rule().accumulates_from() { self.array(view)?.zip(&result, |a, b| a + b) } else { result };
            self.write(view.buffer, view.offset, &encode(&view.meta, &sum))?;
        }
        Ok(())
    }

    fn measure_speed(&self, _: DType) -> Result<Speed> {
        bail!("the oracle is not made to be fast")
    }

    fn typical_speed(&self, _: DType) -> Speed {
        Speed { threads: 1, instruction: "plain f32".into(), flops: 1e9, read: 1e9, write: 1e9 }
    }

    fn allocated_bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.len() as u64).sum()
    }
}
