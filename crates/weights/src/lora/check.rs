//! Would every key load? Each module of a LoRA against the modules of the base model.

use super::{LoraFile, ModuleShape};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// An error that lists every module that isn't in the base, or whose factors have other sizes than its weight needs.
pub fn check(lora: &LoraFile, base_modules: &[ModuleShape]) -> Result<()> {
    let base: BTreeMap<&str, &ModuleShape> = base_modules.iter().map(|module| (module.name.as_str(), module)).collect();
    let mut problems = Vec::new();
    for module in &lora.modules {
        let Some(shape) = base.get(module.module.as_str()) else {
            let hint = base::nearest::nearest(&module.module, base.keys().copied()).map(|n| format!(" (nearest: {n})")).unwrap_or_default();
            problems.push(format!("{} is no module of the base model{hint}", module.module));
            continue;
        };
        let (down, up) = expected_shapes(shape, module.rank());
        if module.down_shape.dims() != down || module.up_shape.dims() != up {
            problems.push(format!(
                "{}: down {} and up {} where the base model needs {} and {}",
                module.module,
                module.down_shape,
                module.up_shape,
                base::Shape(down),
                base::Shape(up)
            ));
        }
    }
    let shown = problems.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
    let more = if problems.len() > 5 { format!("; and {} more", problems.len() - 5) } else { String::new() };
    ensure!(problems.is_empty(), "{} of {} modules would not load: {shown}{more}", problems.len(), lora.modules.len());
    Ok(())
}

/// Shapes of the factors in files.
fn expected_shapes(module: &ModuleShape, rank: usize) -> (Vec<usize>, Vec<usize>) {
    match module.kernel {
        None => (vec![rank, module.input], vec![module.output, rank]),
        Some([kh, kw]) => (vec![rank, module.input, kh, kw], vec![module.output, rank, 1, 1]),
    }
}
