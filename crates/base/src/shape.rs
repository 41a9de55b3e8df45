//! Tensor shapes. The last axis is always the channel axis; all others together are rows.

/// Sizes of the axes, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    pub fn new(dims: &[usize]) -> Shape {
        Shape(dims.to_vec())
    }

    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Size of the last axis (1 for a scalar).
    pub fn channels(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Product of all axes but the last.
    pub fn rows(&self) -> usize {
        self.0.iter().rev().skip(1).product()
    }

    /// Size of the first axis.
    pub fn batch(&self) -> usize {
        self.0.first().copied().unwrap_or(1)
    }

    /// Product of the axes between the first and the last: the tokens, or pixels, of one batch item.
    pub fn tokens(&self) -> usize {
        if self.rank() < 3 { 1 } else { self.0[1..self.rank() - 1].iter().product() }
    }

    /// The same shape with another last axis.
    pub fn with_channels(&self, channels: usize) -> Shape {
        let mut dims = self.0.clone();
        if let Some(last) = dims.last_mut() {
            *last = channels;
        }
        Shape(dims)
    }

    /// The same shape without trailing axes of size 1 beyond `rank` axes: `[8, 4, 1, 1]` squeezed to 2 is `[8, 4]`.
    pub fn squeezed_to(&self, rank: usize) -> Shape {
        let mut dims = self.0.clone();
        while dims.len() > rank && dims.last() == Some(&1) {
            dims.pop();
        }
        Shape(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(dims.to_vec())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", dims.join("×"))
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn rows_tokens_and_channels_split_a_shape() {
        let map = Shape::from([2, 3, 5, 7]);
        assert_eq!((map.batch(), map.tokens(), map.channels(), map.rows(), map.elements()), (2, 15, 7, 30, 210));
        let flat = Shape::from([4, 6]);
        assert_eq!((flat.batch(), flat.tokens(), flat.channels(), flat.rows()), (4, 1, 6, 4));
        assert_eq!(Shape::from([8, 4, 1, 1]).squeezed_to(2), Shape::from([8, 4]));
        assert_eq!(Shape::from([1, 1]).squeezed_to(2), Shape::from([1, 1]));
    }
}
