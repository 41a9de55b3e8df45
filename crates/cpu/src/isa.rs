//! The instruction sets that kernels have paths for, chosen when the process starts: the best that the machine has, or the one that
//! `VELATURA_ISA` names.

use anyhow::{Result, bail};
use base::DType;
use std::cell::Cell;
use std::sync::OnceLock;

/// A path of the kernels. Later ones are faster and need more of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    Portable,
    /// AVX2 with FMA, f32.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, f32.
    Avx512,
    /// The same with bf16 products.
    Avx512Bf16,
    /// AVX-512 with products of 16-bit integers.
    Avx512Vnni,
    /// AVX-512 with bf16, and products of tiles (AMX).
    Amx,
}

const ALL: [Isa; 6] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Avx512Vnni, Isa::Amx];

thread_local! {
    static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

impl Isa {
    /// The name in `VELATURA_ISA` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Amx => "amx",
        }
    }

    /// The path whose instructions multiply activations of `dtype` here: only bf16 has paths of its own.
    pub fn multiplying(self, dtype: DType) -> Isa {
        if dtype == DType::BF16 { self } else { self.min(Isa::Avx512) }
    }

    /// The paths that this machine can run, slowest first; `Portable` is always there.
    pub fn available() -> Vec<Isa> {
        ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// What the environment asks for, else the best. An error says that `VELATURA_ISA` names no path, or one that the machine lacks.
    pub fn chosen() -> Result<Isa> {
        let Ok(name) = std::env::var("VELATURA_ISA") else { return Ok(best()) };
        let names = |list: &[Isa]| list.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
        match ALL.into_iter().find(|isa| isa.name() == name.trim()) {
            Some(isa) if isa.is_available() => Ok(isa),
            Some(_) => bail!("VELATURA_ISA is {name}, which this machine lacks; it has {}", names(&Isa::available())),
            None => bail!("VELATURA_ISA is {name:?}; it can be one of {}", names(&ALL)),
        }
    }

    /// Runs `body` with this path for kernels called from this thread: tests walk all paths.
    pub fn with<R>(self, body: impl FnOnce() -> R) -> R {
        assert!(self.is_available(), "this machine has no {}", self.name());
        let before = FORCED.replace(Some(self));
        let result = body();
        FORCED.set(before);
        result
    }

    /// Makes this the path of the calling thread from now on: a pool's workers all take their pool's.
    pub(crate) fn keep(self) {
        FORCED.set(Some(self));
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        macro_rules! has { ($($feature:tt)*) => { [$(std::arch::is_x86_feature_detected!($feature)),*].iter().all(|has| *has) }; }
        match self {
            Isa::Portable => true,
            Isa::Avx2 => has!("avx2" "fma" "f16c" "bmi2"),
            Isa::Avx512 => Isa::Avx2.is_available() && has!("avx512f" "avx512bw" "avx512dq" "avx512vl"),
            Isa::Avx512Bf16 => Isa::Avx512.is_available() && has!("avx512bf16"),
            Isa::Avx512Vnni => Isa::Avx512.is_available() && has!("avx512vnni"),
            Isa::Amx => Isa::Avx512Bf16.is_available() && crate::kernels::amx_is_available(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(self) -> bool {
        self == Isa::Portable
    }
}

/// AMD's cores multiply pairs of bf16 as fast as pairs of integers; Intel's without AMX are four times slower at it.
fn best() -> Isa {
    let mut available = Isa::available();
    if available.contains(&Isa::Avx512Bf16) && !is_intel() {
        available.retain(|isa| *isa != Isa::Avx512Vnni);
    }
    available.pop().unwrap_or(Isa::Portable)
}

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// The path of kernels called from this thread.
pub fn isa() -> Isa {
    static CHOSEN: OnceLock<Isa> = OnceLock::new();
    FORCED.get().unwrap_or_else(|| *CHOSEN.get_or_init(|| Isa::chosen().unwrap_or_else(|_| best())))
}

/// Defines a function whose body is compiled once for each instruction set, so that its plain loops become wide ones, and that runs the
/// copy for [`isa`]. Functions that the body calls must be `#[inline(always)]`.
macro_rules! vectorize {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$($g:ident : $bound:path),* $(,)?>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($g: $bound),*>)? ($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn plain $(<$($g: $bound),*>)? ($($arg: $type),*) $(-> $ret)? $body

            /// # Safety
            /// The machine has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
            unsafe fn avx512 $(<$($g: $bound),*>)? ($($arg: $type),*) $(-> $ret)? {
                plain $(::<$($g),*>)? ($($arg),*)
            }

            /// # Safety
            /// The machine has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2")]
            unsafe fn avx2 $(<$($g: $bound),*>)? ($($arg: $type),*) $(-> $ret)? {
                plain $(::<$($g),*>)? ($($arg),*)
            }

            match $crate::isa::isa() {
                // SAFETY: an Isa beyond Portable is only chosen where the machine has it.
                #[cfg(target_arch = "x86_64")]
                isa if isa >= $crate::isa::Isa::Avx512 => unsafe { avx512 $(::<$($g),*>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 => unsafe { avx2 $(::<$($g),*>)? ($($arg),*) },
                _ => plain $(::<$($g),*>)? ($($arg),*),
            }
        }
    };
}

pub(crate) use vectorize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_path_holds_for_its_thread_only_while_it_runs() {
        let before = isa();
        Isa::Portable.with(|| assert_eq!(isa(), Isa::Portable));
        assert_eq!(isa(), before);
        assert!(Isa::available().contains(&before));
    }
}
