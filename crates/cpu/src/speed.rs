//! What this machine can do at most, measured: multiply-adds on registers alone, and reading and writing memory.
//!
//! On random data: processors slow down for numbers that make their wires switch, and zeros would flatter the machine.

use crate::isa::Isa;
use crate::memory::Block;
use anyhow::{Context, Result};
use base::{DType, Rng};
use engine::Speed;
use rayon::ThreadPool;
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

/// Larger than the caches of one processor.
const MEMORY_BYTES: u64 = 1 << 29;
/// Random bytes that memory is written with; they stay in the nearest cache.
const PATTERN_BYTES: usize = 16 << 10;
/// The best of so many rounds counts.
const ROUNDS: usize = 8;
/// Multiply-add loops of one round: some hundredths of a second.
const LOOPS: usize = 5_000_000;

/// Measures on all threads of `pool` at once.
pub fn measure(pool: &ThreadPool, isa: Isa) -> Result<Speed> {
    let threads = pool.current_num_threads();
    let flops = best(|| pool.broadcast(|_| rate(|| registers_only(isa, LOOPS))).iter().sum());
    let mut block = Block::new(MEMORY_BYTES).context("no memory to measure the machine with")?;
    let pattern = random_bytes();
    let piece = (MEMORY_BYTES as usize).div_ceil(threads).next_multiple_of(PATTERN_BYTES);
    let bytes = MEMORY_BYTES as f64;
    let mut write = || pool.install(|| block.as_mut_slice().par_chunks_mut(piece).for_each(|part| fill(part, &pattern)));
    // Once before, so that the system has handed out every page.
    write();
    let write = best(|| rate(|| counted(bytes, &mut write)));
    let read = best(|| rate(|| counted(bytes, || pool.install(|| block.as_slice().par_chunks(piece).for_each(sum)))));
    Ok(Speed { threads, instruction: instruction(isa).into(), flops, read, write })
}

/// What matrix kernels and memory-bound ones usually reach by thread, rounded: only ratios count, and `bench` measures the real ones.
pub fn typical(threads: usize, isa: Isa) -> Speed {
    let flops = match isa {
        Isa::Portable => 15e9,
        Isa::Avx2 => 60e9,
        Isa::Avx512 => 110e9,
        Isa::Avx512Bf16 | Isa::Avx512Vnni => 200e9,
        Isa::Amx => 600e9,
    };
    let (flops, bytes) = (flops * threads as f64, 8e9 * threads as f64);
    Speed { threads, instruction: instruction(isa).into(), flops, read: bytes, write: bytes }
}

/// The instruction that a path multiplies with.
pub fn instruction(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => "mulps, addps",
        Isa::Avx2 => "vfmadd231ps, 256 bits",
        Isa::Avx512 => "vfmadd231ps, 512 bits",
        Isa::Avx512Bf16 => "vdpbf16ps, 512 bits",
        Isa::Avx512Vnni => "vpdpwssd, 512 bits",
        Isa::Amx => "tdpbf16ps",
    }
}

fn best(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(0.0, f64::max)
}

/// What `work` says it did, by the second.
fn rate(work: impl FnOnce() -> f64) -> f64 {
    let began = Instant::now();
    let done = work();
    done / began.elapsed().as_secs_f64()
}

fn counted(amount: f64, work: impl FnOnce()) -> f64 {
    work();
    amount
}

fn fill(part: &mut [u8], pattern: &[u8]) {
    part.chunks_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
}

fn sum(part: &[u8]) {
    let words: &[u64] = bytemuck::cast_slice(part);
    black_box(words.iter().fold(0u64, |sum, word| sum ^ word));
}

fn random_bytes() -> Vec<u8> {
    let mut rng = Rng::new(1, "speed", &[]);
    (0..PATTERN_BYTES / 4).flat_map(|_| rng.next_u32().to_le_bytes()).collect()
}

/// Runs `rounds` times 12 independent multiply-adds as the path does them, on registers alone, and returns their FLOP. In assembly,
/// since compilers spill sums in such a loop.
#[cfg(target_arch = "x86_64")]
pub fn registers_only(isa: Isa, rounds: usize) -> f64 {
    use std::arch::asm;

    if isa == Isa::Amx {
        return crate::kernels::amx_registers_only(rounds);
    }
    let mut rng = Rng::new(1, "registers", &[]);
    let values: Vec<f32> = (0..64).map(|_| rng.normal()).collect();
    let dtype = if isa == Isa::Avx512Bf16 { DType::BF16 } else { DType::F32 };
    let factors = base::dtype::from_f32(dtype, &values).expect("floats");
    /// Registers 0 to 11 are the sums, 14 and 15 hold the factors.
    macro_rules! repeat {
        ($instruction:literal, $register:literal, $($sum:literal)*) => {
            asm!(
                concat!("vmovups ", $register, "mm14, [{factors}]"),
                concat!("vmovups ", $register, "mm15, [{factors} + 64]"),
                $(concat!("vxorps xmm", $sum, ", xmm", $sum, ", xmm", $sum),)*
                "2:",
                $(concat!($instruction, " ", $register, "mm", $sum, ", ", $register, "mm14, ", $register, "mm15"),)*
                "dec {rounds}",
                "jnz 2b",
                factors = in(reg) factors.as_ptr(),
                rounds = inout(reg) rounds.max(1) => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm14") _, out("xmm15") _,
                options(readonly, nostack),
            )
        };
    }
    // SAFETY: the caller's path has these instructions; they read the first 128 bytes of factors (64 numbers are that many at least) and
    // change only registers named as outputs.
    let flop = unsafe {
        match isa {
            Isa::Portable | Isa::Amx => return plain(rounds),
            Isa::Avx2 => {
                repeat!("vfmadd231ps", "y", 0 1 2 3 4 5 6 7 8 9 10 11);
                16
            }
            Isa::Avx512 => {
                repeat!("vfmadd231ps", "z", 0 1 2 3 4 5 6 7 8 9 10 11);
                32
            }
            Isa::Avx512Bf16 => {
                repeat!("vdpbf16ps", "z", 0 1 2 3 4 5 6 7 8 9 10 11);
                64
            }
            Isa::Avx512Vnni => {
                repeat!("vpdpwssd", "z", 0 1 2 3 4 5 6 7 8 9 10 11);
                64
            }
        }
    };
    (flop * 12 * rounds) as f64
}

#[cfg(not(target_arch = "x86_64"))]
pub fn registers_only(_: Isa, rounds: usize) -> f64 {
    plain(rounds)
}

/// Multiply-adds that the compiler lays out: sums in 12 registers of four numbers.
fn plain(rounds: usize) -> f64 {
    let mut rng = Rng::new(1, "registers", &[]);
    let mut draw = || std::array::from_fn::<f32, 48, _>(|_| rng.uniform());
    let (factors, terms) = (black_box(draw()[0]), black_box(draw()[0]));
    let mut sums = draw();
    for _ in 0..rounds {
        // Factors below 1 keep the sums in an ordinary range.
        sums.iter_mut().for_each(|sum| *sum = *sum * factors + terms);
    }
    black_box(sums);
    (2 * sums.len() * rounds) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_counts_its_work() {
        // Tests may have AMX emulated, which has no registers to measure.
        for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Amx) {
            assert_eq!(registers_only(isa, 3000), 3.0 * registers_only(isa, 1000), "{}", isa.name());
            assert!(registers_only(isa, 1000) > 0.0);
        }
    }
}
