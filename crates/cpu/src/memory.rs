//! Blocks of host memory: 64-byte aligned, zeroed by the operating system page by page when first touched.

use anyhow::{Result, bail};
use base::bytes::human;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Alignment of every block: a cache line, and the width of the widest vector.
pub const ALIGNMENT: usize = 64;

/// A zeroed block that frees itself.
pub struct Block {
    /// What the allocator gave; none for an empty block.
    allocation: Option<(*mut u8, Layout)>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: a block owns its memory; who may write when is decided by `Cpu`, which is borrowed mutably for it.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    /// Reserves `bytes`; running out of memory is an error, not an abort.
    pub fn new(bytes: u64) -> Result<Block> {
        if bytes == 0 {
            return Ok(Block { allocation: None, pointer: ALIGNMENT as *mut u8, bytes: 0 });
        }
        // The allocator zeroes over-aligned blocks by hand, which would touch every page now. So ask for more and align here.
        let padded = usize::try_from(bytes).ok().and_then(|b| b.checked_add(ALIGNMENT));
        let Some(layout) = padded.and_then(|b| Layout::from_size_align(b, 16).ok()) else {
            bail!("{} is more memory than this machine can address", human(bytes));
        };
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            bail!("the system refused {} of memory", human(bytes));
        }
        // SAFETY: at most `ALIGNMENT` bytes further, inside the padding.
        let pointer = unsafe { start.add(start.align_offset(ALIGNMENT)) };
        Ok(Block { allocation: Some((start, layout)), pointer, bytes: bytes as usize })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised (zeroed) for `bytes`; kernels write only while `Cpu` is borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and exclusive by `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some((start, layout)) = self.allocation {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed() {
        for bytes in [0, 1, 63, 64, 1000, 1 << 20] {
            let mut block = Block::new(bytes).unwrap();
            assert!((block.pointer() as usize).is_multiple_of(ALIGNMENT));
            assert!(block.as_slice().len() as u64 == bytes && block.as_slice().iter().all(|b| *b == 0));
            block.as_mut_slice().fill(7);
        }
    }

    #[test]
    fn too_much_memory_is_an_error_that_names_the_amount() {
        assert!(Block::new(u64::MAX).is_err());
        let error = Block::new(1 << 60).err().expect("no machine has an exbibyte").to_string();
        assert!(error.contains("memory"), "{error}");
    }
}
