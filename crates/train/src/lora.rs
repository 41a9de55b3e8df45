//! Between the trainer's flat parameters and LoRA files.

use anyhow::{Result, bail, ensure};
use models::adapters::{self, Adapters, Factor, ParamLayout};
use std::collections::BTreeMap;
use weights::lora::LoraFile;

/// The adapters' factors out of the flat slice, in file order.
pub fn to_file(adapters: &Adapters, params: &[f32], metadata: BTreeMap<String, String>) -> Result<LoraFile> {
    Ok(LoraFile { modules: adapters::to_file(adapters, &ParamLayout::of(adapters), params)?, metadata })
}

/// Starts `factors` (fresh ones, sorted by name) from an existing LoRA. Ranks must agree; another alpha is folded into the up factor, so
/// that the LoRA does the same as before. Returns notices.
pub fn start_from(file: &LoraFile, adapters: &Adapters, factors: &mut [Factor]) -> Result<Vec<String>> {
    let mut notices = Vec::new();
    check_ranks(file, adapters)?;
    let mut folded = 0;
    for module in &file.modules {
        let Some(adapter) = adapters.get(&module.module) else {
            bail!(
                "the LoRA to start from has a part for {}, which this run does not train; widen network (conv, only_if_contains, …) or \
                 train.train_text_encoder, or start from another file",
                module.module
            );
        };
        let rescale = module.scale() / (adapter.alpha / adapter.rank as f32);
        folded += usize::from(rescale != 1.0);
        let [(down, _), (up, _)] = adapter.params();
        set(factors, &down, module.down_in_memory())?;
        set(factors, &up, module.up.iter().map(|v| v * rescale).collect())?;
    }
    if folded > 0 {
        notices
            .push(format!("{folded} parts of the LoRA to start from have another alpha: the difference is folded into their up factors"));
    }
    let fresh = adapters.len() - file.modules.len();
    if fresh > 0 {
        notices.push(format!("{fresh} of {} modules are not in the LoRA to start from and begin fresh", adapters.len()));
    }
    Ok(notices)
}

fn check_ranks(file: &LoraFile, adapters: &Adapters) -> Result<()> {
    let other = file.modules.iter().find_map(|m| adapters.get(&m.module).filter(|a| a.rank != m.rank()).map(|a| (m, a)));
    let Some((module, adapter)) = other else { return Ok(()) };
    let key = if adapter.module.is_matrix() { "network.linear" } else { "network.conv" };
    bail!(
        "the LoRA to start from has rank {} (at {}), but this run trains rank {}: set {key} to {} to use the file's rank",
        module.rank(),
        module.module,
        adapter.rank,
        module.rank()
    )
}

fn set(factors: &mut [Factor], name: &str, data: Vec<f32>) -> Result<()> {
    let index = factors.binary_search_by(|f| f.name.as_str().cmp(name));
    let Ok(index) = index else { bail!("the factor {name} is none of this run's") };
    ensure!(factors[index].data.len() == data.len(), "{name} has {} values in the LoRA, not {}", data.len(), factors[index].data.len());
    factors[index].data = data;
    Ok(())
}
