//! Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
//!
//! A number is a pure function of (seed, stream, index), so any draw of any step can be made again after a resume,
//! on any thread, without state. Streams keep the uses apart: noise of step 7 never depends on how often captions were drawn.

/// A position in one stream; `Clone` it to draw the same numbers again.
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    stream: [u32; 2],
    counter: u64,
    block: [u32; 4],
    used: usize,
}

/// One Philox block: four 32-bit words from a 128-bit counter and a 64-bit key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// Mixes words into one 64-bit stream number (the finaliser of SplitMix64 after each word).
pub fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x243F_6A88_85A3_08D3, |h, w| {
        let mut z = (h ^ w).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// A stable number for a name, to be a word of a stream (FNV-1a).
pub fn name_word(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3))
}

impl Rng {
    /// The stream that belongs to `seed`, a purpose (`"noise"`, `"caption"`, …) and further words (step, item, …).
    pub fn new(seed: u64, purpose: &str, words: &[u64]) -> Rng {
        let stream = mix(&[&[name_word(purpose)], words].concat());
        Rng { key: [seed as u32, (seed >> 32) as u32], stream: [stream as u32, (stream >> 32) as u32], counter: 0, block: [0; 4], used: 4 }
    }

    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox([self.counter as u32, (self.counter >> 32) as u32, self.stream[0], self.stream[1]], self.key);
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Uniform in [0, 1) with 24 bits.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / (1 << 24) as f32
    }

    /// Uniform integer in `0..n`, without bias (rejection). `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "an empty range has no number in it");
        let zone = u64::MAX - (u64::MAX % n + 1) % n;
        loop {
            let v = self.next_u64();
            if v <= zone {
                return v % n;
            }
        }
    }

    /// Standard normal (Box–Muller, in f64).
    pub fn normal(&mut self) -> f32 {
        let u = (f64::from(self.next_u32()) + 1.0) / 4_294_967_296.0;
        let v = f64::from(self.next_u32()) / 4_294_967_296.0;
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    }

    pub fn fill_normal(&mut self, out: &mut [f32]) {
        out.iter_mut().for_each(|v| *v = self.normal());
    }

    /// Fisher–Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known-answer vectors of the Random123 distribution (`kat_vectors`, philox4x32 10).
    #[test]
    fn philox_matches_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]);
        assert_eq!(
            philox([0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344], [0xA409_3822, 0x299F_31D0]),
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1]
        );
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |purpose, step| Rng::new(7, purpose, &[step]).next_u64();
        assert_eq!(draw("noise", 1), draw("noise", 1));
        assert_ne!(draw("noise", 1), draw("noise", 2));
        assert_ne!(draw("noise", 1), draw("caption", 1));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(1, "test", &[]);
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "mean {mean}, variance {variance}");
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(3, "test", &[]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
