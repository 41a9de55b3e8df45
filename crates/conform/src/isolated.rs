//! Runs one op on a backend with nothing else around: outputs and scratch poisoned, and guarded by known bytes that must not change.

use crate::values::{encode, normal};
use base::Rng;
use engine::backend::{Scratch, Step};
use engine::{Backend, View};
use graph::{Array, Meta, Op};

/// What guards the regions.
const GUARD: u8 = 0xa5;
/// What outputs and scratch hold before the run: NaN in every float type.
const POISON: u8 = 0xff;
const ALIGNMENT: u64 = 64;

/// One op, ready to run.
pub struct Isolated<'a> {
    pub op: &'a Op,
    pub metas: Vec<&'a Meta>,
    pub inputs: &'a [Array],
    /// The input whose bytes output 0 takes over.
    pub in_place: Option<usize>,
}

/// What the outputs hold after the run, and what those that accumulate held before.
pub struct Outcome {
    pub metas: Vec<Meta>,
    pub bytes: Vec<Vec<u8>>,
    pub before: Vec<Option<Array>>,
}

/// A stretch of the test's buffer.
struct Region {
    offset: u64,
    bytes: u64,
}

/// Lays regions out, each followed at once by guard bytes.
struct Layout {
    end: u64,
}

impl Layout {
    fn place(&mut self, bytes: u64) -> Region {
        let offset = self.end;
        self.end = (offset + bytes).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        Region { offset, bytes }
    }
}

impl Isolated<'_> {
    /// Runs the op; panics if a byte changes that is neither an output's nor scratch.
    pub fn run(&self, backend: &mut dyn Backend, rng: &mut Rng) -> Outcome {
        let metas = self.op.rule().outputs(&self.metas);
        let mut layout = Layout { end: ALIGNMENT };
        let inputs: Vec<Region> = self.metas.iter().map(|m| layout.place(m.bytes())).collect();
        let own: Vec<Region> = metas.iter().map(|m| layout.place(m.bytes())).collect();
        let outputs: Vec<&Region> =
            own.iter().enumerate().map(|(i, r)| if i == 0 { self.in_place.map_or(r, |p| &inputs[p]) } else { r }).collect();
        let scratch = layout.place(backend.scratch_bytes(self.op, &self.metas, &metas.iter().collect::<Vec<_>>()));

        let mut image = vec![GUARD; layout.end as usize];
        let mut fill = |region: &Region, bytes: &[u8]| image[region.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        let before: Vec<Option<Array>> =
            metas.iter().enumerate().map(|(i, m)| (i >= self.op.rule().accumulates_from()).then(|| normal(m, rng))).collect();
        for ((region, meta), before) in own.iter().zip(&metas).zip(&before) {
            let poison = || vec![POISON; region.bytes as usize];
            fill(region, &before.as_ref().map_or_else(poison, |b| encode(meta, b)));
        }
        self.inputs.iter().zip(&self.metas).zip(&inputs).for_each(|((array, meta), region)| fill(region, &encode(meta, array)));
        fill(&scratch, &vec![POISON; scratch.bytes as usize]);

        let buffer = backend.allocate(layout.end).expect("memory for a test");
        backend.write(buffer, 0, &image).expect("in range");
        let view = |region: &Region, meta: &Meta| View { buffer, offset: region.offset, meta: meta.clone() };
        let step = Step {
            op: self.op.clone(),
            inputs: inputs.iter().zip(&self.metas).map(|(r, m)| view(r, m)).collect(),
            outputs: outputs.iter().zip(&metas).map(|(r, m)| view(r, m)).collect(),
            scratch: Scratch { buffer, offset: scratch.offset, bytes: scratch.bytes },
        };
        backend.run(&step).expect("a step that fits");
        let mut after = vec![0; image.len()];
        backend.read(buffer, 0, &mut after).expect("in range");
        backend.free(buffer);

        let range = |r: &Region| r.offset as usize..(r.offset + r.bytes) as usize;
        let bytes = outputs.iter().map(|r| after[range(r)].to_vec()).collect();
        outputs.iter().copied().chain([&scratch]).for_each(|r| after[range(r)].copy_from_slice(&image[range(r)]));
        if let Some(at) = (0..image.len()).find(|i| image[*i] != after[*i]) {
            panic!("{:?} changed byte {at}, which is neither output nor scratch; inputs stand at {:?}", self.op, ranges(&inputs));
        }
        Outcome { metas, bytes, before }
    }
}

fn ranges(regions: &[Region]) -> Vec<std::ops::Range<u64>> {
    regions.iter().map(|r| r.offset..r.offset + r.bytes).collect()
}
