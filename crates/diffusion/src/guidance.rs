//! Classifier-free guidance (Ho & Salimans, 2022), in the form that the whole field uses.

/// `out` = negative + scale · (positive − negative); at scale 1 this is the plain prediction.
pub fn combine(negative: &[f32], positive: &[f32], scale: f32, out: &mut [f32]) {
    assert!(negative.len() == positive.len() && negative.len() == out.len(), "both predictions have one size");
    for ((o, n), p) in out.iter_mut().zip(negative).zip(positive) {
        *o = n + scale * (p - n);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn guidance_goes_beyond_the_positive_prediction() {
        let mut out = [0.0; 2];
        super::combine(&[1.0, 2.0], &[2.0, 0.0], 3.0, &mut out);
        assert_eq!(out, [4.0, -4.0]);
    }
}
