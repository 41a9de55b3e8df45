//! State arrays: what an optimizer keeps for each element, row, or parameter, at 32 or 8 bits.

use crate::dynamic::{BLOCK, Code};
use crate::state::Array;
use crate::table::{Grain, Matrix, matrix, pieces};
use crate::{Layout, State, StateError};

/// What an array holds for each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number for each element.
    Elements,
    /// A number for each element, in blocks of the 8-bit code.
    Coded(Code),
    /// A number for every `n`th element of a parameter.
    EveryNth(usize),
    /// A number for each row of a matrix; for each element of a vector.
    Rows,
    /// A number for each row of a matrix; nothing for vectors.
    MatrixRows,
    /// A number for each column of a matrix; nothing for vectors.
    Columns,
    /// A number for each element of a vector; nothing for matrices.
    VectorElements,
    /// One number for each parameter.
    Single,
    /// So many bits for each element: planes of one bit, each padded to whole bytes.
    Bits(usize),
}

/// An array's name in saved states, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub name: &'static str,
    pub kind: Kind,
}

impl Spec {
    pub const fn new(name: &'static str, kind: Kind) -> Spec {
        Spec { name, kind }
    }
}

impl Kind {
    /// Floats and bytes for a piece of `elements` that begins at `offset` in its parameter.
    fn size(self, offset: usize, elements: usize, matrix: Matrix) -> [usize; 2] {
        let vector = matrix.columns == 0;
        match self {
            Kind::Elements => [elements, 0],
            Kind::Coded(_) => [elements.div_ceil(BLOCK), elements],
            Kind::EveryNth(n) => [(offset + elements).div_ceil(n) - offset.div_ceil(n), 0],
            Kind::Rows => [matrix.rows, 0],
            Kind::MatrixRows => [if vector { 0 } else { matrix.rows }, 0],
            Kind::Columns => [matrix.columns, 0],
            Kind::VectorElements => [if vector { elements } else { 0 }, 0],
            Kind::Single => [1, 0],
            Kind::Bits(planes) => [0, planes * elements.div_ceil(8)],
        }
    }

    /// Bytes for all parameters of a layout.
    pub fn bytes(self, layout: &Layout) -> u64 {
        let one = |p: &crate::Param| {
            let [floats, bytes] = self.size(0, p.shape.elements(), matrix(&p.shape));
            if p.shape.elements() == 0 { 0 } else { (4 * floats + bytes) as u64 }
        };
        layout.params().iter().map(one).sum()
    }
}

/// A state array of a whole run, cut like its table.
#[derive(Clone, Debug)]
pub struct Cells {
    spec: Spec,
    floats: Vec<f32>,
    bytes: Vec<u8>,
    /// Where each piece's floats and bytes begin, and their numbers at the end.
    starts: Vec<[usize; 2]>,
}

/// One piece's part of an array.
pub struct Lane<'a> {
    pub floats: &'a mut [f32],
    pub bytes: &'a mut [u8],
    kind: Kind,
    starts: &'a [[usize; 2]],
}

impl Cells {
    pub fn new(spec: Spec, layout: &Layout, grain: Grain) -> Cells {
        let mut starts = vec![[0, 0]];
        let mut end = [0, 0];
        for piece in pieces(layout, grain) {
            let matrix = matrix(&layout.params()[piece.param].shape);
            let [floats, bytes] = spec.kind.size(piece.offset, piece.range.len(), matrix);
            end = [end[0] + floats, end[1] + bytes];
            starts.push(end);
        }
        let fill = if let Kind::Coded(code) = spec.kind { code.zero() } else { 0 };
        Cells { spec, floats: vec![0.0; end[0]], bytes: vec![fill; end[1]], starts }
    }

    pub fn lane(&mut self) -> Lane<'_> {
        Lane { floats: &mut self.floats, bytes: &mut self.bytes, kind: self.spec.kind, starts: &self.starts }
    }

    pub fn floats(&self) -> &[f32] {
        &self.floats
    }

    pub fn floats_mut(&mut self) -> &mut [f32] {
        &mut self.floats
    }

    /// Bytes held.
    pub fn held(&self) -> u64 {
        (4 * self.floats.len() + self.bytes.len()) as u64
    }

    /// The names of the float part and of the byte part in saved states.
    fn names(&self) -> [String; 2] {
        let name = self.spec.name.to_string();
        match self.spec.kind {
            Kind::Coded(_) => [format!("{name}_scale"), name],
            _ => [name.clone(), name],
        }
    }

    /// Adds this array's part for a parameter, whose pieces are `pieces`, to a state.
    pub fn save(&self, param: &str, pieces: std::ops::Range<usize>, state: &mut State) {
        let ([f0, b0], [f1, b1]) = (self.starts[pieces.start], self.starts[pieces.end]);
        let [float_name, byte_name] = self.names();
        let arrays = state.params.entry(param.to_string()).or_default();
        if f1 > f0 {
            arrays.insert(float_name, Array::F32(self.floats[f0..f1].to_vec()));
        }
        if b1 > b0 {
            arrays.insert(byte_name, Array::U8(self.bytes[b0..b1].to_vec()));
        }
    }

    /// Reads back what [`Cells::save`] added. On an error this array may hold part of it.
    pub fn load(&mut self, param: &str, pieces: std::ops::Range<usize>, state: &State) -> Result<(), StateError> {
        let ([f0, b0], [f1, b1]) = (self.starts[pieces.start], self.starts[pieces.end]);
        let [float_name, byte_name] = self.names();
        if f1 > f0 {
            self.floats[f0..f1].copy_from_slice(state.floats(param, &float_name, f1 - f0)?);
        }
        if b1 > b0 {
            self.bytes[b0..b1].copy_from_slice(state.bytes(param, &byte_name, b1 - b0)?);
        }
        Ok(())
    }
}

impl<'a> Lane<'a> {
    /// Keeps the part of the first `count` pieces and returns the rest.
    pub(crate) fn split_off(&mut self, count: usize) -> Lane<'a> {
        let ([f0, b0], [f1, b1]) = (self.starts[0], self.starts[count]);
        let (floats, right_floats) = std::mem::take(&mut self.floats).split_at_mut(f1 - f0);
        let (bytes, right_bytes) = std::mem::take(&mut self.bytes).split_at_mut(b1 - b0);
        let starts = &self.starts[count..];
        (self.floats, self.bytes) = (floats, bytes);
        Lane { floats: right_floats, bytes: right_bytes, kind: self.kind, starts }
    }

    fn code(&self) -> Option<Code> {
        if let Kind::Coded(code) = self.kind { Some(code) } else { None }
    }

    /// Decodes a block of the piece.
    fn read(&self, block: usize, values: &mut [f32]) {
        let code = self.code().expect("all lanes of a rule are coded, or none");
        code.book().decode(&self.bytes[block * BLOCK..block * BLOCK + values.len()], self.floats[block], values);
    }

    /// Encodes a block of the piece.
    fn write(&mut self, block: usize, values: &[f32]) {
        let code = self.code().expect("all lanes of a rule are coded, or none");
        self.floats[block] = code.book().encode(code, values, &mut self.bytes[block * BLOCK..block * BLOCK + values.len()]);
    }
}

/// Runs `rule` over a piece with its state as f32: at once where it is stored so, or block by block through the 8-bit code.
/// Either all of `lanes` are coded or none.
pub fn decoded<const N: usize>(
    params: &mut [f32],
    grads: &[f32],
    lanes: [Lane; N],
    mut rule: impl FnMut(&mut [f32], &[f32], [&mut [f32]; N]),
) {
    if lanes.iter().all(|lane| lane.code().is_none()) {
        return rule(params, grads, lanes.map(|lane| lane.floats));
    }
    let mut buffers = [[0.0f32; BLOCK]; N];
    let mut lanes = lanes;
    for (block, (params, grads)) in params.chunks_mut(BLOCK).zip(grads.chunks(BLOCK)).enumerate() {
        let length = params.len();
        buffers.iter_mut().zip(&lanes).for_each(|(buffer, lane)| lane.read(block, &mut buffer[..length]));
        rule(params, grads, buffers.each_mut().map(|buffer| &mut buffer[..length]));
        buffers.iter().zip(&mut lanes).for_each(|(buffer, lane)| lane.write(block, &buffer[..length]));
    }
}

/// Like [`decoded`], for rules that only look at their state: what is stored in 8 bits must not be rounded again.
pub fn looked_at<const N: usize>(params: &mut [f32], lanes: [Lane; N], mut rule: impl FnMut(&mut [f32], [&[f32]; N])) {
    if lanes.iter().all(|lane| lane.code().is_none()) {
        return rule(params, lanes.map(|lane| &*lane.floats));
    }
    let mut buffers = [[0.0f32; BLOCK]; N];
    for (block, params) in params.chunks_mut(BLOCK).enumerate() {
        let length = params.len();
        buffers.iter_mut().zip(&lanes).for_each(|(buffer, lane)| lane.read(block, &mut buffer[..length]));
        rule(params, buffers.each_ref().map(|buffer| &buffer[..length]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    #[test]
    fn every_kind_has_the_planned_bytes_on_any_grain() {
        let shapes = [vec![3, 20_000], vec![70_000], vec![2, 3, 3, 4]];
        let layout = Layout::uniform(shapes.into_iter().enumerate().map(|(i, dims)| (format!("p{i}"), Shape(dims)))).unwrap();
        let coded = [Code::Signed, Code::Unsigned].map(Kind::Coded);
        for kind in [Kind::Elements, Kind::EveryNth(11), Kind::EveryNth(1)].into_iter().chain(coded) {
            for grain in [Grain::Chunk, Grain::Param] {
                assert_eq!(Cells::new(Spec::new("a", kind), &layout, grain).held(), kind.bytes(&layout), "{kind:?}");
            }
        }
        for (kind, bytes) in [
            (Kind::Rows, 4 * (3 + 70_000 + 2)),
            (Kind::MatrixRows, 4 * (3 + 2)),
            (Kind::Columns, 4 * (20_000 + 36)),
            (Kind::VectorElements, 4 * 70_000),
            (Kind::Single, 12),
            (Kind::Bits(8), 8 * (7_500 + 8_750 + 9)),
        ] {
            assert_eq!(kind.bytes(&layout), bytes, "{kind:?}");
            assert_eq!(Cells::new(Spec::new("a", kind), &layout, Grain::Param).held(), bytes, "{kind:?}");
        }
    }
}
