//! One kernel an op, in the file named after the op's room.

use crate::tensor::Tensor;
use anyhow::Result;
use graph::{Meta, Op, for_each_op, ops};

mod activation;
mod add;
mod add_channels;
mod attention;
mod cast;
mod concat;
mod conv2d;
mod embedding;
mod geglu;
mod group_norm;
mod layer_norm;
mod linear;
mod loss;
mod low_rank;
mod matmul;
mod reshape;
mod scale;
mod slice;
#[cfg(test)]
mod testing;
mod timestep_embedding;
mod upsample;

#[cfg(target_arch = "x86_64")]
pub use matmul::{amx_is_available, amx_registers_only};

/// What a kernel works on.
pub struct Call<'a> {
    pub inputs: &'a [Tensor<'a>],
    pub outputs: &'a [Tensor<'a>],
    /// Planned scratch, aligned to 64 bytes; its content is whatever was there.
    pub scratch: &'a mut [u8],
}

/// The CPU side of an op.
pub trait Kernel: Sync {
    /// Bytes of scratch at these shapes. May depend on the number of threads of the pool, which is fixed for a process.
    fn scratch_bytes(&self, _inputs: &[&Meta], _outputs: &[&Meta]) -> u64 {
        0
    }

    /// Refuses contents of inputs that the kernel could not read safely.
    fn check(&self, _inputs: &[Tensor]) -> Result<()> {
        Ok(())
    }

    /// Overwrites the outputs (adds into parameter gradients), whatever they held before.
    fn run(&self, call: &mut Call);
}

macro_rules! dispatch {
    ($($name:ident),*) => {
        /// The kernel of an op.
        pub fn kernel(op: &Op) -> &dyn Kernel {
            match op { $(Op::$name(op) => op as &dyn Kernel),* }
        }

        // A missing kernel is a compile error that names the op.
        const _: fn() = || {
            fn has_kernel<T: Kernel>() {}
            $(has_kernel::<ops::$name>();)*
        };
    };
}

for_each_op!(dispatch);
