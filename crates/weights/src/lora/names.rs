//! Which names a LoRA's modules can have, in each layout: a grammar made from the key table, matched whole.

use crate::checkpoint::Checkpoint;
use crate::keys::{Blocks, Pattern, module_patterns};
use base::Shape;
use std::sync::LazyLock;

/// A module of the base model that a LoRA can sit on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleShape {
    /// Canonical name, without `.weight`.
    pub name: String,
    pub input: usize,
    pub output: usize,
    /// [kh, kw] of a convolution (1×1 ones too); `None` for a matrix.
    pub kernel: Option<[usize; 2]>,
}

impl ModuleShape {
    /// By the shape of the module's weight in files: [O, I] or [O, I, kh, kw].
    pub fn of_weight(name: &str, weight: &Shape) -> Option<ModuleShape> {
        let name = name.to_owned();
        match *weight.dims() {
            [output, input] => Some(ModuleShape { name, input, output, kernel: None }),
            [output, input, kh, kw] => Some(ModuleShape { name, input, output, kernel: Some([kh, kw]) }),
            _ => None,
        }
    }
}

/// Every module of a base model that a LoRA can sit on, sorted by name.
pub fn modules_of(checkpoint: &Checkpoint) -> Vec<ModuleShape> {
    let module = |name: &str| {
        let module = name.strip_suffix(".weight").filter(|module| is_module(module))?;
        ModuleShape::of_weight(module, &checkpoint.info(name)?.1)
    };
    checkpoint.names().filter_map(module).collect()
}

struct Row {
    ours: Pattern,
    kohya: Pattern,
    /// The text encoder's names as transformers 5 writes them, without `text_model.`.
    short: Option<Pattern>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let row = |ours: String| Row {
        kohya: Pattern::new(&kohya_spelling(&ours)),
        short: ours.strip_prefix("text_encoder.text_model.").map(|rest| Pattern::new(&format!("text_encoder.{rest}"))),
        ours: Pattern::new(&ours),
    };
    module_patterns().into_iter().map(row).collect()
});

/// `unet.a.b` → `lora_unet_a_b`, `text_encoder.a.b` → `lora_te_a_b`.
fn kohya_spelling(ours: &str) -> String {
    let (prefix, rest) = match ours.strip_prefix("text_encoder.") {
        Some(rest) => ("lora_te_", rest),
        None => ("lora_unet_", ours.strip_prefix("unet.").unwrap_or(ours)),
    };
    format!("{prefix}{}", rest.replace('.', "_"))
}

/// Kohya's name → ours, by the first row that has this form. Rows have numbers only where names have them, so there is one.
pub(super) fn from_kohya(name: &str) -> Option<String> {
    let blocks = Blocks::default();
    ROWS.iter().find_map(|row| row.ours.write(&row.kohya.read(name, &blocks)?, &blocks))
}

/// Our name → kohya's; `None` if no LoRA can sit there.
pub(super) fn to_kohya(module: &str) -> Option<String> {
    is_module(module).then(|| kohya_spelling(module))
}

/// A dotted name with its component → ours.
pub(super) fn from_dotted(name: &str) -> Option<String> {
    let blocks = Blocks::default();
    ROWS.iter().find_map(|row| {
        let indices = row.ours.read(name, &blocks).or_else(|| row.short.as_ref()?.read(name, &blocks))?;
        row.ours.write(&indices, &blocks)
    })
}

pub(super) fn is_module(name: &str) -> bool {
    let blocks = Blocks::default();
    ROWS.iter().any(|row| row.ours.read(name, &blocks).is_some())
}
