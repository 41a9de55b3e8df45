//! AMX bf16: 32×32 tiles of f32 sums in four tile registers, two for A and two for B; a step is 16 words of the reduction.
//!
//! A is read where it stands, B from the same panels that AVX-512 reads. Stable Rust has no intrinsics for tiles, so the loop over the
//! reduction is assembly. Rows are read 16 at a time: operands have readable rows up to the next multiple, and what they hold there ends
//! in rows of sums that are thrown away. Tiles flush denormal numbers to zero.

use super::micro::{LANES, Micro, Sweep, Tile};
use base::DType;
use std::arch::asm;
use std::cell::Cell;
use std::sync::OnceLock;

/// Rows of a tile register.
const ROWS: usize = 16;
/// Words of the reduction of a step.
const STEP: usize = 16;

static MICRO: Micro = Micro {
    name: "amx bf16",
    packed: DType::BF16,
    rows: 2 * ROWS,
    whole_rows: ROWS,
    columns: 2 * LANES,
    step: STEP,
    block_words: 24 * STEP,
    tile_columns: 320,
    tile,
    sweep: Some(Sweep { words: 2 * STEP, run: sweep }),
    transpose: super::avx512::transpose,
    interleave: Some(super::avx512_bf16::interleave),
    round: Some(super::avx512_bf16::round),
    fixed: None,
};

/// A product of whole tile registers: C [16 · down, 16 · across] (+)= A · B. Strides are bytes.
#[derive(Clone, Copy)]
struct Block {
    a: *const u8,
    a_stride: usize,
    down: usize,
    b: *const u8,
    across: usize,
    steps: usize,
    c: *mut u8,
    c_stride: usize,
    accumulate: bool,
}

/// # Safety
/// The process may use AMX; the operands are as [`Tile`] says, with readable rows of A up to a multiple of 16, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    configure();
    // SAFETY: as the caller promises.
    unsafe { tile_by(t, multiply) }
}

/// Hands whole registers of a tile to `run`; rows that don't fill one pass through a buffer.
///
/// # Safety
/// As [`tile`], for what `run` does.
unsafe fn tile_by(t: &Tile, run: unsafe fn(&Block)) {
    assert!(t.words > 0 && t.words.is_multiple_of(STEP), "a reduction of {} words is not in steps of {STEP}", t.words);
    let across = t.columns / LANES;
    let block = |row: usize, down, c, c_stride: usize| Block {
        a: t.a.wrapping_add(row * t.a_stride).cast(),
        a_stride: t.a_stride * 4,
        down,
        b: t.b.cast(),
        across,
        steps: t.words / STEP,
        c,
        c_stride: c_stride * 4,
        accumulate: t.accumulate,
    };
    let whole = t.rows / ROWS;
    // SAFETY: as the caller promises; the buffer takes a register's rows of a whole panel.
    unsafe {
        if whole > 0 {
            run(&block(0, whole, t.c.cast(), t.c_stride));
        }
        let (first, rest) = (whole * ROWS, t.rows % ROWS);
        if rest > 0 {
            let mut buffer = [0.0f32; ROWS * 2 * LANES];
            let row = |r: usize| t.c.add((first + r) * t.c_stride);
            if t.accumulate {
                (0..rest).for_each(|r| row(r).copy_to_nonoverlapping(buffer[r * t.columns..].as_mut_ptr(), t.columns));
            }
            run(&block(first, 1, buffer.as_mut_ptr().cast(), t.columns));
            (0..rest).for_each(|r| row(r).copy_from_nonoverlapping(buffer[r * t.columns..].as_ptr(), t.columns));
        }
    }
}

/// # Safety
/// The process may use AMX and this thread has configured its tiles; operands are as [`Block`] says, and C is ours.
unsafe fn multiply(block: &Block) {
    // SAFETY: as the caller promises.
    unsafe {
        match (block.down, block.across) {
            (1, 1) => one_by_one(block),
            (1, _) => one_by_two(block),
            (_, 1) => two_by_one(block),
            _ => two_by_two(block),
        }
    }
}

/// A function that loads or clears C, walks the reduction, and stores C. C registers are tmm0 to tmm3, A is in tmm4 and tmm5, B in tmm6 and
/// tmm7. `c2` and `a2` are 16 rows below `c` and `a`. The loads of a step come together: where another program shares the core, turning
/// from loads to products and back costs a tenth of both.
macro_rules! registers {
    ($name:ident, load [$($load:literal),*], clear [$($clear:literal),*], step [$($step:literal),*], store [$($store:literal),*]) => {
        /// # Safety
        /// As [`multiply`].
        unsafe fn $name(block: &Block) {
            let c2 = block.c.wrapping_add(ROWS * block.c_stride);
            // SAFETY: registers, and the memory that the caller promises.
            unsafe {
                if block.accumulate {
                    asm!($($load,)* c = in(reg) block.c, c2 = in(reg) c2, cs = in(reg) block.c_stride,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, preserves_flags));
                } else {
                    asm!($($clear,)* out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nomem, nostack, preserves_flags));
                }
                asm!(
                    "2:",
                    $($step,)*
                    "add {a}, 64",
                    "add {a2}, 64",
                    "add {b}, {bn}",
                    "dec {n}",
                    "jnz 2b",
                    $($store,)*
                    a = inout(reg) block.a => _,
                    a2 = inout(reg) block.a.wrapping_add(ROWS * block.a_stride) => _,
                    at = in(reg) block.a_stride,
                    b = inout(reg) block.b => _,
                    bs = in(reg) block.across * 64,
                    bn = in(reg) block.across * 64 * STEP,
                    n = inout(reg) block.steps => _,
                    c = in(reg) block.c,
                    c2 = in(reg) c2,
                    cs = in(reg) block.c_stride,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

registers!(
    two_by_two,
    load ["tileloadd tmm0, [{c} + {cs}]", "tileloadd tmm1, [{c} + {cs} + 64]", "tileloadd tmm2, [{c2} + {cs}]", "tileloadd tmm3, [{c2} + {cs} + 64]"],
    clear ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
    step [
        "tileloadd tmm6, [{b} + {bs}]", "tileloadd tmm4, [{a} + {at}]", "tileloadd tmm7, [{b} + {bs} + 64]", "tileloadd tmm5, [{a2} + {at}]",
        "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7"
    ],
    store ["tilestored [{c} + {cs}], tmm0", "tilestored [{c} + {cs} + 64], tmm1", "tilestored [{c2} + {cs}], tmm2", "tilestored [{c2} + {cs} + 64], tmm3"]
);

registers!(
    two_by_one,
    load ["tileloadd tmm0, [{c} + {cs}]", "tileloadd tmm2, [{c2} + {cs}]"],
    clear ["tilezero tmm0", "tilezero tmm2"],
    step [
        "tileloadd tmm6, [{b} + {bs}]", "tileloadd tmm4, [{a} + {at}]", "tileloadd tmm5, [{a2} + {at}]",
        "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm2, tmm5, tmm6"
    ],
    store ["tilestored [{c} + {cs}], tmm0", "tilestored [{c2} + {cs}], tmm2"]
);

registers!(
    one_by_two,
    load ["tileloadd tmm0, [{c} + {cs}]", "tileloadd tmm1, [{c} + {cs} + 64]", "/* {c2} */"],
    clear ["tilezero tmm0", "tilezero tmm1"],
    step [
        "tileloadd tmm6, [{b} + {bs}]", "tileloadd tmm4, [{a} + {at}]", "tileloadd tmm7, [{b} + {bs} + 64]",
        "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7"
    ],
    store ["tilestored [{c} + {cs}], tmm0", "tilestored [{c} + {cs} + 64], tmm1", "/* {c2} */"]
);

registers!(
    one_by_one,
    load ["tileloadd tmm0, [{c} + {cs}]", "/* {c2} */"],
    clear ["tilezero tmm0"],
    step ["tileloadd tmm6, [{b} + {bs}]", "tileloadd tmm4, [{a} + {at}]", "tdpbf16ps tmm0, tmm4, tmm6"],
    store ["tilestored [{c} + {cs}], tmm0", "/* {c2} */"]
);

/// # Safety
/// As [`tile`], for `panels` whole panels that follow each other, with C beside each other, room for 16 or 32 rows of C, and at most two
/// steps.
unsafe fn sweep(t: &Tile, panels: usize) {
    configure();
    debug_assert!(t.words == STEP || t.words == 2 * STEP);
    // SAFETY: as the caller promises.
    unsafe {
        match (t.rows > ROWS, t.words > STEP) {
            (false, false) => sweep_one_short(t, panels),
            (false, true) => sweep_one_long(t, panels),
            (true, false) => sweep_two_short(t, panels),
            (true, true) => sweep_two_long(t, panels),
        }
    }
}

/// A function that keeps A in tmm4 to tmm7 and walks the panels: for each 16 columns B comes into tmm2 and tmm3, and C into tmm0 and tmm1.
macro_rules! sweeps {
    ($name:ident, load [$($load:literal),*], columns [$($columns:literal),*]) => {
        /// # Safety
        /// As [`sweep`].
        unsafe fn $name(t: &Tile, panels: usize) {
            let a = t.a.cast::<u8>();
            let (a_stride, c_stride) = (t.a_stride * 4, t.c_stride * 4);
            // SAFETY: as the caller promises.
            unsafe {
                asm!(
                    $($load,)*
                    a = in(reg) a,
                    a2 = in(reg) a.wrapping_add(ROWS * a_stride),
                    at = in(reg) a_stride,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, preserves_flags, readonly),
                );
                asm!(
                    "2:",
                    $($columns,)*
                    "add {b}, {next}",
                    "add {c}, 128",
                    "add {c2}, 128",
                    "dec {n}",
                    "jnz 2b",
                    b = inout(reg) t.b.cast::<u8>() => _,
                    bs = in(reg) 128usize,
                    next = in(reg) t.words * 128,
                    c = inout(reg) t.c.cast::<u8>() => _,
                    c2 = inout(reg) t.c.cast::<u8>().wrapping_add(ROWS * c_stride) => _,
                    cs = in(reg) c_stride,
                    n = inout(reg) panels => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

sweeps!(
    sweep_one_short,
    load ["/* {a2} */ tileloadd tmm4, [{a} + {at}]"],
    columns [
        "tileloadd tmm2, [{b} + {bs}]", "/* {c2} */ tilezero tmm0", "tdpbf16ps tmm0, tmm4, tmm2", "tilestored [{c} + {cs}], tmm0",
        "tileloadd tmm2, [{b} + {bs} + 64]", "tilezero tmm0", "tdpbf16ps tmm0, tmm4, tmm2", "tilestored [{c} + {cs} + 64], tmm0"
    ]
);

sweeps!(
    sweep_one_long,
    load ["/* {a2} */ tileloadd tmm4, [{a} + {at}]", "tileloadd tmm5, [{a} + {at} + 64]"],
    columns [
        "tileloadd tmm2, [{b} + {bs}]", "tileloadd tmm3, [{b} + {bs} + 2048]", "/* {c2} */ tilezero tmm0",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm0, tmm5, tmm3",
        "tilestored [{c} + {cs}], tmm0",
        "tileloadd tmm2, [{b} + {bs} + 64]", "tileloadd tmm3, [{b} + {bs} + 2112]", "tilezero tmm0",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm0, tmm5, tmm3",
        "tilestored [{c} + {cs} + 64], tmm0"
    ]
);

sweeps!(
    sweep_two_short,
    load ["tileloadd tmm4, [{a} + {at}]", "tileloadd tmm6, [{a2} + {at}]"],
    columns [
        "tileloadd tmm2, [{b} + {bs}]", "tilezero tmm0", "tilezero tmm1",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm1, tmm6, tmm2",
        "tilestored [{c} + {cs}], tmm0", "tilestored [{c2} + {cs}], tmm1",
        "tileloadd tmm2, [{b} + {bs} + 64]", "tilezero tmm0", "tilezero tmm1",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm1, tmm6, tmm2",
        "tilestored [{c} + {cs} + 64], tmm0", "tilestored [{c2} + {cs} + 64], tmm1"
    ]
);

sweeps!(
    sweep_two_long,
    load ["tileloadd tmm4, [{a} + {at}]", "tileloadd tmm5, [{a} + {at} + 64]", "tileloadd tmm6, [{a2} + {at}]", "tileloadd tmm7, [{a2} + {at} + 64]"],
    columns [
        "tileloadd tmm2, [{b} + {bs}]", "tileloadd tmm3, [{b} + {bs} + 2048]", "tilezero tmm0", "tilezero tmm1",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm1, tmm6, tmm2", "tdpbf16ps tmm0, tmm5, tmm3", "tdpbf16ps tmm1, tmm7, tmm3",
        "tilestored [{c} + {cs}], tmm0", "tilestored [{c2} + {cs}], tmm1",
        "tileloadd tmm2, [{b} + {bs} + 64]", "tileloadd tmm3, [{b} + {bs} + 2112]", "tilezero tmm0", "tilezero tmm1",
        "tdpbf16ps tmm0, tmm4, tmm2", "tdpbf16ps tmm1, tmm6, tmm2", "tdpbf16ps tmm0, tmm5, tmm3", "tdpbf16ps tmm1, tmm7, tmm3",
        "tilestored [{c} + {cs} + 64], tmm0", "tilestored [{c2} + {cs} + 64], tmm1"
    ]
);

/// Runs `rounds` times eight multiplications on registers alone, whose factors are random, and returns their FLOP.
pub fn registers_only(rounds: usize) -> f64 {
    configure();
    let mut rng = base::Rng::new(1, "registers", &[]);
    let values: Vec<f32> = (0..1024).map(|_| rng.normal()).collect();
    let factors = base::dtype::from_f32(DType::BF16, &values).expect("floats");
    // SAFETY: the path is chosen only where the process may use AMX; two registers are loaded from 2048 bytes.
    unsafe {
        asm!(
            "tileloadd tmm6, [{factors} + {row}]",
            "tileloadd tmm7, [{factors} + {row} + 1024]",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "2:",
            "tdpbf16ps tmm0, tmm6, tmm7", "tdpbf16ps tmm1, tmm6, tmm7", "tdpbf16ps tmm2, tmm6, tmm7", "tdpbf16ps tmm3, tmm6, tmm7",
            "tdpbf16ps tmm0, tmm7, tmm6", "tdpbf16ps tmm1, tmm7, tmm6", "tdpbf16ps tmm2, tmm7, tmm6", "tdpbf16ps tmm3, tmm7, tmm6",
            "dec {rounds}",
            "jnz 2b",
            factors = in(reg) factors.as_ptr(),
            row = in(reg) 64usize,
            rounds = inout(reg) rounds.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm6") _, out("tmm7") _,
            options(readonly, nostack),
        );
    }
    (8 * 2 * ROWS * LANES * 2 * STEP * rounds) as f64
}

/// Makes all eight tile registers of this thread 16 rows of 64 bytes, once.
fn configure() {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if DONE.replace(true) {
        return;
    }
    #[repr(C, align(64))]
    struct Config([u8; 64]);
    let mut config = Config([0; 64]);
    config.0[0] = 1;
    for register in 0..8 {
        config.0[16 + 2 * register] = 64;
        config.0[48 + register] = ROWS as u8;
    }
    // SAFETY: callers have made sure that the process may use tiles; palette 1 allows this shape.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, preserves_flags, readonly)) };
}

/// The micro-kernel; tests on a machine without AMX emulate its instructions, and run all the rest of the path.
pub fn micro() -> &'static Micro {
    #[cfg(test)]
    if !works() {
        return &tests::EMULATED;
    }
    &MICRO
}

pub fn is_available() -> bool {
    cfg!(test) || works()
}

/// Whether this process may use AMX and a small product comes out right. Asks the kernel for permission, once.
fn works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| has_instructions() && is_permitted() && multiplies_right(tile))
}

/// CPUID leaf 7: bf16 products (bit 22) and tiles (bit 24).
fn has_instructions() -> bool {
    let leaves = std::arch::x86_64::__cpuid(0).eax;
    leaves >= 7 && std::arch::x86_64::__cpuid_count(7, 0).edx & (1 << 22 | 1 << 24) == 1 << 22 | 1 << 24
}

/// `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`: tiles enlarge what a context switch saves, so Linux wants to be asked.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    let result: i64;
    // SAFETY: system call 158 takes these two numbers, touches no memory of ours, and overwrites rcx and r11.
    unsafe {
        asm!("syscall", inout("rax") 158i64 => result, in("rdi") 0x1023, in("rsi") 18, out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Checks products of small whole numbers in all register shapes, with rows missing and sums added.
fn multiplies_right(tile: unsafe fn(&Tile)) -> bool {
    let number = |i: usize| half::bf16::from_f32((i * 7 % 23) as f32 - 11.0);
    let (words, stride) = (2 * STEP, 3 * STEP);
    let a: Vec<half::bf16> = (0..32 * stride * 2).map(number).collect();
    [(32, 32), (32, 16), (16, 32), (16, 16), (29, 32), (5, 16), (17, 32)].into_iter().all(|(rows, columns)| {
        let b: Vec<half::bf16> = (0..words * columns * 2).map(|i| number(i * 5 + 3)).collect();
        let mut c = vec![1.0f32; rows * 40];
        let t = Tile {
            a: a.as_ptr().cast(),
            a_stride: stride,
            rows,
            b: b.as_ptr().cast(),
            columns,
            words,
            c: c.as_mut_ptr(),
            c_stride: 40,
            accumulate: true,
            units: (std::ptr::null(), std::ptr::null()),
        };
        // SAFETY: the operands have these sizes.
        unsafe { tile(&t) };
        let sum = |r: usize, j: usize| -> f32 {
            (0..2 * words).map(|k| a[r * stride * 2 + k].to_f32() * b[k / 2 * columns * 2 + j * 2 + k % 2].to_f32()).sum()
        };
        (0..rows).all(|r| (0..40).all(|j| c[r * 40 + j] == if j < columns { 1.0 + sum(r, j) } else { 1.0 }))
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What the assembly does, in plain Rust.
    ///
    /// # Safety
    /// As [`multiply`], on any machine.
    unsafe fn emulate(block: &Block) {
        let number = |from: *const u8, at: usize| f32::from_bits(u32::from(unsafe { from.cast::<u16>().add(at).read_unaligned() }) << 16);
        for i in 0..block.down * ROWS {
            for j in 0..block.across * LANES {
                // SAFETY: as the caller promises.
                unsafe {
                    let c = block.c.add(i * block.c_stride).cast::<f32>().add(j);
                    let mut sum = if block.accumulate { c.read() } else { 0.0 };
                    for k in 0..block.steps * STEP * 2 {
                        let b = number(block.b, k / 2 * block.across * LANES * 2 + j * 2 + k % 2);
                        sum += number(block.a.add(i * block.a_stride), k) * b;
                    }
                    c.write(sum);
                }
            }
        }
    }

    /// # Safety
    /// As [`super::tile`], on any machine.
    unsafe fn emulated_tile(t: &Tile) {
        // SAFETY: as the caller promises.
        unsafe { tile_by(t, emulate) }
    }

    /// # Safety
    /// As [`super::sweep`], on any machine.
    unsafe fn emulated_sweep(t: &Tile, panels: usize) {
        let rows = t.rows.next_multiple_of(ROWS);
        for panel in 0..panels {
            let (b, c) = (t.b.wrapping_add(panel * t.words * t.columns), t.c.wrapping_add(panel * t.columns));
            // SAFETY: as the caller promises.
            unsafe { emulated_tile(&Tile { b, c, rows, ..*t }) };
        }
    }

    pub static EMULATED: Micro =
        Micro { name: "amx bf16, emulated", tile: emulated_tile, sweep: Some(Sweep { words: 2 * STEP, run: emulated_sweep }), ..MICRO };

    #[test]
    fn registers_are_shared_out_right() {
        assert!(multiplies_right(emulated_tile));
    }

    #[test]
    fn sweeping_over_panels_is_multiplying_by_each() {
        let micro = micro();
        let sweep = micro.sweep.expect("the path sweeps").run;
        let number = |i: usize| half::bf16::from_f32((i * 11 % 29) as f32 - 14.0);
        for (rows, words, panels) in [(16, 16, 1), (32, 16, 3), (16, 32, 2), (32, 32, 1), (32, 32, 5)] {
            let a: Vec<half::bf16> = (0..rows * (words + 16) * 2).map(number).collect();
            let b: Vec<half::bf16> = (0..panels * words * 64).map(|i| number(i * 3 + 1)).collect();
            let c_stride = panels * 32 + 16;
            let run = |by: &dyn Fn(&Tile)| {
                let mut c = vec![7.5f32; rows * c_stride];
                let (a, b, c_pointer) = (a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr());
                let units = (std::ptr::null(), std::ptr::null());
                by(&Tile { a, a_stride: words + 16, rows, b, columns: 32, words, c: c_pointer, c_stride, accumulate: false, units });
                c
            };
            // SAFETY: the operands have these sizes.
            let swept = run(&|t| unsafe { sweep(t, panels) });
            let each = run(&|t| {
                for panel in 0..panels {
                    let (b, c) = (t.b.wrapping_add(panel * words * 32), t.c.wrapping_add(panel * 32));
                    // SAFETY: as above.
                    unsafe { (micro.tile)(&Tile { b, c, ..*t }) };
                }
            });
            assert_eq!(swept, each, "{rows} rows, {words} words, {panels} panels");
        }
    }

    #[test]
    fn a_wrong_product_is_noticed() {
        unsafe fn wrong(t: &Tile) {
            // SAFETY: as for the right one.
            unsafe {
                emulated_tile(t);
                *t.c.add(t.columns - 1) += 1.0;
            }
        }
        assert!(!multiplies_right(wrong));
    }
}
