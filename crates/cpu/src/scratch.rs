//! Carves typed stretches out of a kernel's scratch bytes.

use bytemuck::Pod;

/// Bytes that [`carve`] takes for `count` elements of `T`: whole cache lines, so that the next stretch is aligned too.
pub fn carved_bytes<T>(count: usize) -> u64 {
    graph::plan::align((count * size_of::<T>()) as u64)
}

/// Splits `count` elements off the front of `scratch`. Their content is whatever was there.
pub fn carve<'a, T: Pod>(scratch: &mut &'a mut [u8], count: usize) -> &'a mut [T] {
    let (front, rest) = std::mem::take(scratch).split_at_mut(carved_bytes::<T>(count) as usize);
    *scratch = rest;
    &mut bytemuck::cast_slice_mut(front)[..count]
}
