//! A checkpoint as configs see it: tensor shapes by canonical name; and the check that a graph's weights are all there.

use anyhow::{Context, Result, bail, ensure};
use base::Shape;
use graph::Graph;

type Lookup<'a> = dyn Fn(&str) -> Option<Shape> + 'a;

/// Looks a tensor's shape up by canonical name; convolutions are `[O, I, kh, kw]` as in files.
pub struct Shapes<'a> {
    /// What the shapes are of, for messages (a path).
    source: String,
    lookup: Box<Lookup<'a>>,
}

impl<'a> Shapes<'a> {
    pub fn new(source: impl Into<String>, lookup: impl Fn(&str) -> Option<Shape> + 'a) -> Shapes<'a> {
        Shapes { source: source.into(), lookup: Box::new(lookup) }
    }

    pub fn of_checkpoint(checkpoint: &'a weights::Checkpoint) -> Shapes<'a> {
        let lookup = |name: &str| checkpoint.info(name).map(|(_, shape)| shape);
        Shapes::new(checkpoint.path().display().to_string(), lookup)
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn find(&self, name: &str) -> Option<Shape> {
        (self.lookup)(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The shape of a tensor that must be there.
    pub fn get(&self, name: &str) -> Result<Shape> {
        self.find(name).with_context(|| format!("{} has no tensor {name}", self.source))
    }

    /// One size of a tensor that must be there.
    pub fn dim(&self, name: &str, axis: usize) -> Result<usize> {
        let shape = self.get(name)?;
        shape.dims().get(axis).copied().with_context(|| format!("{}: tensor {name} {shape} has no axis {axis}", self.source))
    }

    /// How many of `name(0)`, `name(1)`, … are there without a gap.
    pub fn count(&self, name: impl Fn(usize) -> String) -> usize {
        (0..).take_while(|i| self.has(&name(*i))).count()
    }

    /// An error that names the first weight of `graph` that is missing or has another shape.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        for (name, id) in graph.weights() {
            let wanted = &graph.meta(id).shape;
            let Some(found) = self.find(name) else {
                bail!("{} has no tensor {name}; the model that its config describes needs it as {wanted}", self.source);
            };
            ensure!(
                same_weight(wanted, &found),
                "{}: tensor {name} is {found}, but the model that its config describes needs {}",
                self.source,
                file_form(wanted)
            );
        }
        Ok(())
    }
}

/// `[O, kh, kw, I]` in memory is `[O, I, kh, kw]` in files.
pub fn file_form(memory: &Shape) -> Shape {
    match memory.dims() {
        &[o, kh, kw, i] => Shape::from([o, i, kh, kw]),
        _ => memory.clone(),
    }
}

/// Whether a file's tensor is the weight of that shape in memory; 1×1 kernels count as matrices.
fn same_weight(memory: &Shape, file: &Shape) -> bool {
    let form = file_form(memory);
    form == *file || (form.rank() == 2 && file.squeezed_to(2) == form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_one_pixel_counts_as_a_matrix() {
        assert!(same_weight(&Shape::from([8, 4]), &Shape::from([8, 4, 1, 1])));
        assert!(same_weight(&Shape::from([8, 3, 3, 4]), &Shape::from([8, 4, 3, 3])));
        assert!(!same_weight(&Shape::from([8, 3, 3, 4]), &Shape::from([8, 3, 3, 4])));
        assert!(!same_weight(&Shape::from([8]), &Shape::from([8, 1])));
    }
}
