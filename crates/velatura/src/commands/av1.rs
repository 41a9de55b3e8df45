//! `velatura av1`: the process that decodes AV1 pictures, so that a damaged one can't end another process than this.

use anyhow::Result;
use std::io::{BufWriter, stdin, stdout};

const BUFFER_BYTES: usize = 1 << 16;

pub fn run() -> Result<()> {
    data::av1::serve(stdin().lock(), BufWriter::with_capacity(BUFFER_BYTES, stdout().lock()))
}
