//! The table expanded to one row per tensor name.

use super::Blocks;
use super::pattern::Pattern;
use super::table::{CLIP, DIFFUSERS_OLD, Holds, OPEN_CLIP, Place, Role, SHORTENED, UNET, VAE};

/// How the bytes and shape in the file become the canonical tensor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    Same,
    /// [O, I, 1, 1] is read as [O, I]; the bytes are the same.
    Matrix,
    /// The rows n·R/3 … (n+1)·R/3 of a tensor with R rows.
    Third(u8),
}

/// One canonical tensor name and its name in a file.
#[derive(Clone, Debug)]
pub struct Row {
    pub ours: Pattern,
    pub source: Pattern,
    pub transform: Transform,
}

/// Rows for original single-file checkpoints; which text encoder's rows depends on the one that the file has.
pub fn original_rows(blocks: &Blocks) -> Vec<Row> {
    let mut rows: Vec<(String, String, Role)> = Vec::new();
    for places in [UNET, VAE, if blocks.open_clip_layers.is_some() { OPEN_CLIP } else { CLIP }] {
        modules(places, &mut rows);
    }
    tensor_rows(with_shortened(rows))
}

/// Rows for diffusers folders: canonical names, and the older ones. File keys get their component in front first.
pub fn diffusers_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for places in [UNET, VAE, CLIP] {
        modules(places, &mut rows);
    }
    for (ours, source, _) in &mut rows {
        *source = ours.clone();
    }
    modules(DIFFUSERS_OLD, &mut rows);
    tensor_rows(with_shortened(rows))
}

/// Patterns of the modules that a LoRA can sit on: matrices and convolutions of the UNet and the text encoder.
pub fn module_patterns() -> Vec<String> {
    let mut rows = Vec::new();
    modules(UNET, &mut rows);
    modules(CLIP, &mut rows);
    rows.into_iter().filter(|(_, _, role)| matches!(role, Role::Linear | Role::Conv | Role::Pointwise)).map(|(ours, _, _)| ours).collect()
}

fn modules(places: &[Place], rows: &mut Vec<(String, String, Role)>) {
    for (ours, source, holds) in places {
        match holds {
            Holds::One(role) => rows.push(((*ours).to_owned(), (*source).to_owned(), *role)),
            Holds::Group(layers) => {
                rows.extend(layers.iter().map(|(a, b, role)| (format!("{ours}.{a}"), format!("{source}.{b}"), *role)));
            }
        }
    }
}

fn with_shortened(mut rows: Vec<(String, String, Role)>) -> Vec<(String, String, Role)> {
    for (long, short) in SHORTENED {
        let shorter = |(ours, source, role): &(String, String, Role)| {
            source.strip_prefix(long).map(|rest| (ours.clone(), format!("{short}{rest}"), *role))
        };
        let more: Vec<_> = rows.iter().filter_map(shorter).collect();
        rows.extend(more);
    }
    rows
}

fn tensor_rows(modules: Vec<(String, String, Role)>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (ours, source, role) in modules {
        let mut add = |ours: String, source: String, transform| {
            rows.push(Row { ours: Pattern::new(&ours), source: Pattern::new(&source), transform });
        };
        let (of_weight, of_bias) = match role {
            Role::Third(n) => (Transform::Third(n), Transform::Third(n)),
            Role::Pointwise => (Transform::Matrix, Transform::Same),
            _ => (Transform::Same, Transform::Same),
        };
        match role {
            Role::Bare => add(ours, source, Transform::Same),
            Role::Embedding => add(format!("{ours}.weight"), format!("{source}.weight"), of_weight),
            Role::Third(_) => {
                add(format!("{ours}.weight"), format!("{source}_weight"), of_weight);
                add(format!("{ours}.bias"), format!("{source}_bias"), of_bias);
            }
            Role::Norm | Role::Linear | Role::Conv | Role::Pointwise => {
                add(format!("{ours}.weight"), format!("{source}.weight"), of_weight);
                add(format!("{ours}.bias"), format!("{source}.bias"), of_bias);
            }
        }
    }
    rows
}
