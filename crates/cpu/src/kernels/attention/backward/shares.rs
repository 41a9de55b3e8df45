//! ∂Q from what each share of the keys gave to it.

use super::super::super::matmul::Shared;
use super::super::super::matmul::micro::{LANES, Micro, Transpose};
use super::plan::{Plan, QUERIES};
use crate::element::Element;
use crate::isa::vectorize;
use crate::tensor::Tensor;
use crate::threads;
use base::DType;
use half::{bf16, f16};

/// ∂Q = the sum of the shares' ∂Qᵀ, turned.
pub fn add_shares(micro: &Micro, plan: &Plan, shares: Shared, dq: &Tensor) {
    let sizes = &plan.sizes;
    let blocks = sizes.queries.div_ceil(plan.queries);
    threads::for_each(sizes.batch * sizes.heads * blocks, |task, _| {
        let (head, first) = (task / blocks, task % blocks * plan.queries);
        let to = sizes.head(dq, head).pointer.cast_mut();
        let count = (sizes.queries - first).min(plan.queries);
        // SAFETY: all shares were written before; these rows of ∂Q, and these columns of the shares, are this task's alone.
        unsafe {
            let from = shares.pointer().cast::<f32>().add(head * plan.shares * plan.share() + first);
            match dq.dtype() {
                DType::BF16 => turn_shares::<bf16>(micro, plan, from, count, to.cast::<bf16>().add(first * sizes.stride())),
                DType::F16 => turn_shares::<f16>(micro, plan, from, count, to.cast::<f16>().add(first * sizes.stride())),
                _ => turn_shares::<f32>(micro, plan, from, count, to.cast::<f32>().add(first * sizes.stride())),
            }
        }
    });
}

vectorize! {
    /// Adds the shares up in the first, 16 channels at a time, and writes them with channels last.
    fn turn_shares<T: Element>(micro: &Micro, plan: &Plan, from: *mut f32, queries: usize, to: *mut T) {
        let mut turned = [0.0f32; QUERIES * LANES];
        for c in (0..plan.sizes.depth).step_by(LANES) {
            let channels = (plan.sizes.depth - c).min(LANES);
            // SAFETY: by the caller's promise; blocks have at most QUERIES queries.
            unsafe {
                for row in 0..channels {
                    let sum = from.add((c + row) * plan.dq_stride);
                    for share in 1..plan.shares {
                        (0..queries).for_each(|i| *sum.add(i) += *sum.add(share * plan.share() + i));
                    }
                }
                let from = from.add(c * plan.dq_stride).cast_const().cast();
                let into = turned.as_mut_ptr().cast();
                (micro.transpose)(&Transpose { from, from_stride: plan.dq_stride * 4, rows: channels, words: queries, into, into_stride: LANES });
                for i in 0..queries {
                    for l in 0..channels {
                        to.add(i * plan.sizes.stride() + c + l).write(T::from_f32(turned[i * LANES + l]));
                    }
                }
            }
        }
    }
}
