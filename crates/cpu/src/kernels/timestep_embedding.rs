//! Sinusoids of a handful of timesteps: too small to be worth more than the op's own formula.

use super::{Call, Kernel};
use crate::block::with_activation;
use crate::element::Element;
use graph::ops::TimestepEmbedding;

impl Kernel for TimestepEmbedding {
    fn run(&self, call: &mut Call) {
        let (t, y) = (call.inputs[0].slice::<f32>(), &call.outputs[0]);
        assert_eq!(y.elements(), t.len() * self.channels, "timestep_embedding: the shapes don't fit");
        with_activation!(self.dtype, T => {
            // SAFETY: nobody else holds y.
            let y = unsafe { y.slice_mut::<T>(0, y.elements()) };
            for (row, t) in y.chunks_exact_mut(self.channels).zip(t) {
                row.iter_mut().enumerate().for_each(|(c, y)| *y = T::from_f32(self.at(*t, c)));
            }
        });
    }
}
