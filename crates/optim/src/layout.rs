//! Where each trained parameter lies in the flat slices, and which group's settings it follows.

use anyhow::{Result, bail, ensure};
use base::Shape;
use std::collections::HashSet;
use std::ops::Range;

/// One trained tensor: its canonical name (`unet.….lora_down`), shape, and first element in the flat slices.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: String,
    pub shape: Shape,
    pub offset: usize,
    /// Index into [`Layout::groups`].
    pub group: usize,
}

impl Param {
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.shape.elements()
    }
}

/// Settings that some parameters share, as the UNet's or the text encoder's.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    /// Multiplies the scheduled rate.
    pub lr_scale: f64,
    /// `None`: the optimizer's own setting.
    pub weight_decay: Option<f64>,
}

/// The table of all parameters, in the order of the flat slices, without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    params: Vec<Param>,
    groups: Vec<Group>,
    elements: usize,
}

impl Layout {
    pub fn new() -> Layout {
        Layout::default()
    }

    /// Adds a group and returns its index.
    pub fn add_group(&mut self, name: &str, lr_scale: f64, weight_decay: Option<f64>) -> Result<usize> {
        ensure!(lr_scale.is_finite() && lr_scale >= 0.0, "parameter group {name}: lr factor {lr_scale} must be a number ≥ 0");
        if let Some(decay) = weight_decay {
            ensure!(decay.is_finite() && decay >= 0.0, "parameter group {name}: weight_decay {decay} must be a number ≥ 0");
        }
        self.groups.push(Group { name: name.to_string(), lr_scale, weight_decay });
        Ok(self.groups.len() - 1)
    }

    /// Appends a parameter and returns its range in the flat slices.
    pub fn push(&mut self, name: &str, shape: Shape, group: usize) -> Result<Range<usize>> {
        ensure!(group < self.groups.len(), "parameter {name} names group {group}, but there are {}", self.groups.len());
        let param = Param { name: name.to_string(), shape, offset: self.elements, group };
        let range = param.range();
        self.elements = range.end;
        self.params.push(param);
        Ok(range)
    }

    /// A layout with one group of plain settings.
    pub fn uniform(params: impl IntoIterator<Item = (String, Shape)>) -> Result<Layout> {
        let mut layout = Layout::new();
        let group = layout.add_group("all", 1.0, None)?;
        for (name, shape) in params {
            layout.push(&name, shape, group)?;
        }
        layout.check()?;
        Ok(layout)
    }

    /// Refuses two parameters of one name: their saved states would overwrite each other.
    pub fn check(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for param in &self.params {
            if !seen.insert(param.name.as_str()) {
                bail!("two trained parameters are called {}", param.name);
            }
        }
        Ok(())
    }

    pub fn params(&self) -> &[Param] {
        &self.params
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Length of the flat slices.
    pub fn elements(&self) -> usize {
        self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_lie_behind_each_other_without_gaps() {
        let mut layout = Layout::new();
        let unet = layout.add_group("unet", 1.0, None).unwrap();
        let text = layout.add_group("text", 0.5, Some(0.0)).unwrap();
        for (name, size, group) in [("a", 3, unet), ("b", 4, unet), ("c", 5, text), ("d", 6, unet)] {
            layout.push(name, Shape::from([size]), group).unwrap();
        }
        let places: Vec<(Range<usize>, usize)> = layout.params().iter().map(|param| (param.range(), param.group)).collect();
        assert_eq!(places, [(0..3, unet), (3..7, unet), (7..12, text), (12..18, unet)]);
        assert_eq!(layout.elements(), 18);
    }

    #[test]
    fn two_parameters_of_one_name_and_unknown_groups_are_refused() {
        let twice = [("a".to_string(), Shape::from([1])), ("a".to_string(), Shape::from([2]))];
        assert!(Layout::uniform(twice).unwrap_err().to_string().contains("called a"));
        assert!(Layout::new().push("a", Shape::from([1]), 0).is_err());
        assert!(Layout::new().add_group("g", f64::NAN, None).is_err());
    }
}
