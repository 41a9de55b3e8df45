//! Blocks of host memory, mapped straight from the operating system: aligned to pages, and zeroed page by page when first touched.

use anyhow::{Context, Result};
use base::human;
use memmap2::MmapMut;

/// Blocks from this size on ask for huge pages: fewer page faults, and weights that matrix kernels read in strides stay in the TLB.
#[cfg(target_os = "linux")]
const HUGE: u64 = 4 << 20;

/// A zeroed block that frees itself.
pub struct Block {
    map: MmapMut,
    /// Taken once, so that every kernel's pointers come from the same one.
    pointer: *mut u8,
    bytes: u64,
}

// SAFETY: a block owns its memory; who may write when is decided by `Cpu`, which is borrowed mutably for it.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    /// Reserves `bytes`; running out of memory is an error, not an abort.
    pub fn new(bytes: u64) -> Result<Block> {
        let too_large = || format!("{} is more memory than this machine can address", human(bytes));
        // An empty mapping is not allowed everywhere.
        let length = isize::try_from(bytes.max(1)).ok().with_context(too_large)?;
        let mut map = MmapMut::map_anon(length as usize).with_context(|| format!("the system refused {} of memory", human(bytes)))?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE {
            // A wish: without huge pages everything works, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let pointer = map.as_mut_ptr();
        Ok(Block { map, pointer, bytes })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.map[..self.bytes as usize]
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.map[..self.bytes as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed() {
        for bytes in [0, 1, 63, 64, 1000, 8 << 20] {
            let mut block = Block::new(bytes).unwrap();
            assert!((block.pointer() as usize).is_multiple_of(64));
            assert!(block.as_slice().len() as u64 == bytes && block.as_slice().iter().all(|b| *b == 0));
            block.as_mut_slice().fill(7);
        }
    }

    #[test]
    fn too_much_memory_is_an_error_that_names_the_amount() {
        for bytes in [u64::MAX, 1 << 60] {
            let error = Block::new(bytes).err().expect("no machine has an exbibyte").to_string();
            assert!(error.contains("TB"), "{error}");
        }
    }
}
