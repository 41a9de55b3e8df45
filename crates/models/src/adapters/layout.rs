//! Where each factor lies in one flat slice of trained numbers.

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

#[cfg(test)]
mod tests {
    use super::super::lora::AdapterSpec;
    use super::super::targets::{Kind, Module};
    use super::*;

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
