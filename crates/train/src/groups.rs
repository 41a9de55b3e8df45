//! The optimizer's table: every trained parameter with its rate and weight decay.
//!
//! A parameter's rate is `unet_lr` or `text_encoder_lr`, or what the first of `param_groups` that fits its name says instead; LoRA+
//! multiplies it for `lora_up`. All are shares of one base rate, which the schedule shapes.

use anyhow::{Result, ensure};
use base::Shape;
use config::{GroupRate, ParamGroup, TrainConfig};
use optim::Layout;

/// What a parameter's settings are called: the part, its entry of `param_groups`, and whether LoRA+ applies.
type Key = (&'static str, Option<usize>, bool);

/// The table of `params` (name and shape, in the order of the flat slices).
pub fn layout<'a>(train: &TrainConfig, params: impl IntoIterator<Item = (&'a str, &'a Shape)>) -> Result<Layout> {
    let mut layout = Layout::new();
    let mut keys: Vec<Key> = Vec::new();
    for (name, shape) in params {
        let key = key_of(train, name);
        let group = match keys.iter().position(|known| *known == key) {
            Some(group) => group,
            None => {
                keys.push(key);
                add(&mut layout, train, key)?
            }
        };
        layout.push(name, shape.clone(), group)?;
    }
    check_all_used(&train.param_groups, &keys)?;
    layout.check()?;
    Ok(layout)
}

fn key_of(train: &TrainConfig, name: &str) -> Key {
    let part = if name.starts_with("text_encoder.") { "text_encoder" } else { "unet" };
    let entry = train.param_groups.iter().position(|group| group.contains.iter().any(|text| name.contains(text)));
    (part, entry, train.loraplus_lr_ratio != 1.0 && name.ends_with(".lora_up"))
}

fn add(layout: &mut Layout, train: &TrainConfig, (part, entry, plus): Key) -> Result<usize> {
    let part_lr = if part == "unet" { train.unet_lr } else { train.text_encoder_lr };
    let group = entry.map(|i| &train.param_groups[i]);
    let lr = match group.map(|g| g.rate) {
        None => part_lr,
        Some(GroupRate::Rate(lr)) => lr,
        Some(GroupRate::Scale(scale)) => scale * part_lr,
    };
    let lr = if plus { lr * train.loraplus_lr_ratio } else { lr };
    let base_lr = train.base_lr();
    let scale = if base_lr > 0.0 { lr / base_lr } else { 0.0 };
    let name = [Some(part.to_string()), entry.map(|i| format!("param_groups[{i}]")), plus.then(|| "lora_up".to_string())];
    let name: Vec<String> = name.into_iter().flatten().collect();
    layout.add_group(&name.join(" "), scale, group.and_then(|g| g.weight_decay))
}

/// An entry that fits no parameter is a mistake: its author thinks that something has another rate.
fn check_all_used(groups: &[ParamGroup], keys: &[Key]) -> Result<()> {
    for (i, group) in groups.iter().enumerate() {
        ensure!(
            keys.iter().any(|(_, entry, _)| *entry == Some(i)),
            "train.param_groups[{i}]: no trained parameter's name contains {} (or an earlier entry takes all that do); names look like \
             unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_down",
            group.contains.join(" or ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(train: &str) -> TrainConfig {
        let text = format!("name: a\nmodel: {{path: m}}\ndatasets: [{{folder_path: x}}]\ntrain: {{{train}}}\n");
        config::load(text.as_bytes(), "c.yaml", &[]).unwrap().config.train
    }

    const NAMES: [&str; 4] =
        ["text_encoder.a.lora_down", "unet.down_blocks.0.attn2.to_k.lora_down", "unet.down_blocks.0.attn2.to_k.lora_up", "unet.b.lora_up"];

    fn rates(train: &TrainConfig) -> Result<Vec<(f64, Option<f64>)>> {
        let shape = Shape::from([2]);
        let layout = layout(train, NAMES.iter().map(|name| (*name, &shape)))?;
        let group = |p: &optim::Param| &layout.groups()[p.group];
        Ok(layout.params().iter().map(|p| (group(p).lr_scale * train.base_lr(), group(p).weight_decay)).collect())
    }

    #[test]
    fn every_parameter_has_the_rate_of_its_part_its_entry_and_its_factor() {
        let train = config(
            "lr: 1e-4, text_encoder_lr: 5e-5, train_text_encoder: true, loraplus_lr_ratio: 16, \
             param_groups: [{contains: attn2, lr: 1e-5, weight_decay: 0}, {contains: [unet.b], lr_scale: 0.5}]",
        );
        let expected = [(5e-5, None), (1e-5, Some(0.0)), (16e-5, Some(0.0)), (8e-4, None)];
        for (found, expected) in rates(&train).unwrap().into_iter().zip(expected) {
            assert!((found.0 / expected.0 - 1.0).abs() < 1e-12 && found.1 == expected.1, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn an_entry_that_fits_nothing_is_refused() {
        let error = rates(&config("param_groups: [{contains: attn2}, {contains: up_blocks}]")).unwrap_err().to_string();
        assert!(error.contains("param_groups[1]") && error.contains("up_blocks"), "{error}");
        assert!(rates(&config("param_groups: [{contains: unet}, {contains: attn2}]")).is_err());
    }
}
