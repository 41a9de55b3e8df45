//! Where each factor lies in one flat slice of trained numbers, and the order of a convolution's factor in memory and in files.

use super::lora::Factor;
use super::resolve::Adapters;
use base::Shape;
use std::ops::Range;

/// One trained tensor in the flat slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: String,
    pub shape: Shape,
    pub range: Range<usize>,
}

/// All factors of a model's adapters, sorted by name, without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParamLayout {
    pub params: Vec<Param>,
}

impl ParamLayout {
    pub fn of(adapters: &Adapters) -> ParamLayout {
        let mut list: Vec<(String, Shape)> = adapters.iter().flat_map(|a| a.params()).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        let mut params: Vec<Param> = Vec::with_capacity(list.len());
        for (name, shape) in list {
            let start = params.last().map_or(0, |p| p.range.end);
            let range = start..start + shape.elements();
            params.push(Param { name, shape, range });
        }
        ParamLayout { params }
    }

    /// Length of the flat slice.
    pub fn elements(&self) -> usize {
        self.params.last().map_or(0, |p| p.range.end)
    }

    pub fn find(&self, name: &str) -> Option<&Param> {
        self.params.binary_search_by(|p| p.name.as_str().cmp(name)).ok().map(|i| &self.params[i])
    }

    /// The factors (as [`Adapters::init`] gives them: sorted by name) as one flat slice.
    pub fn flatten(&self, factors: &[Factor]) -> Vec<f32> {
        assert!(self.params.iter().map(|p| &p.name).eq(factors.iter().map(|f| &f.name)), "the factors are of other adapters");
        factors.iter().flat_map(|f| f.data.iter().copied()).collect()
    }
}

/// `[r, kh, kw, in]` → `[r, in, kh, kw]`; matrices stay as they are. `shape` is the one in memory.
pub fn down_to_file(shape: &Shape, data: &[f32]) -> Vec<f32> {
    let &[r, kh, kw, inputs] = shape.dims() else { return data.to_vec() };
    moved(r, kh * kw, inputs, data)
}

/// `[r, in, kh, kw]` → `[r, kh, kw, in]`; matrices stay as they are. `shape` is the one in memory.
pub fn down_from_file(shape: &Shape, data: &[f32]) -> Vec<f32> {
    let &[r, kh, kw, inputs] = shape.dims() else { return data.to_vec() };
    moved(r, inputs, kh * kw, data)
}

/// Swaps the last two axes of `[outer, a, b]`.
fn moved(outer: usize, a: usize, b: usize, data: &[f32]) -> Vec<f32> {
    assert_eq!(outer * a * b, data.len(), "a factor of [{outer}×{a}×{b}] has another number of elements");
    let at = |o: usize, j: usize, i: usize| data[(o * a + i) * b + j];
    (0..outer).flat_map(|o| (0..b).flat_map(move |j| (0..a).map(move |i| at(o, j, i)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lora::AdapterSpec;
    use super::super::targets::{Kind, Module};
    use super::*;

    #[test]
    fn a_kernel_goes_to_the_file_and_back() {
        let shape = Shape::from([2, 3, 3, 5]);
        let data: Vec<f32> = (0..90).map(|v| v as f32).collect();
        let file = down_to_file(&shape, &data);
        // Element [r=1, in=4, u=2, v=0] of the file is [1, 2, 0, 4] in memory.
        assert_eq!(file[((5 + 4) * 3 + 2) * 3], data[((3 + 2) * 3) * 5 + 4]);
        assert_eq!(down_from_file(&shape, &file), data);
        assert_eq!(down_to_file(&Shape::from([9, 10]), &data), data);
    }

    #[test]
    fn ranges_are_sorted_by_name_and_cover_the_slice() {
        let module = |name: &str| Module { name: name.into(), kind: Kind::Linear, inputs: 3, outputs: 5 };
        let modules = ["unet.b.attentions.0.to_q", "unet.a.attentions.0.to_q"].map(module);
        let adapters = Adapters::resolve(&AdapterSpec { rank: 2, ..AdapterSpec::default() }, &modules).unwrap();
        let layout = ParamLayout::of(&adapters);
        assert_eq!(layout.elements(), 2 * (6 + 10));
        assert_eq!(layout.params[0].name, "unet.a.attentions.0.to_q.lora_down");
        assert_eq!(layout.find("unet.b.attentions.0.to_q.lora_up").unwrap().range, 22..32);
        let flat = layout.flatten(&adapters.init(1));
        assert!(flat[6..16].iter().all(|v| *v == 0.0) && flat[..6].iter().all(|v| *v != 0.0));
    }
}
