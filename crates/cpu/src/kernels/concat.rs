//! y = [a | b] along the channels: rows of bytes are copied.

use super::slice::copy_columns;
use super::{Call, Kernel};
use graph::ops::Concat;

impl Kernel for Concat {
    fn run(&self, call: &mut Call) {
        let (a, b, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        assert!(
            a.rows() == y.rows() && b.rows() == y.rows() && a.channels() + b.channels() == y.channels(),
            "concat: the shapes don't fit"
        );
        copy_columns(a, 0, y, 0, a.channels());
        copy_columns(b, 0, y, a.channels(), b.channels());
    }
}
