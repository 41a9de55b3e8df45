//! Trained numbers ↔ what a LoRA file holds. In files a convolution's factors are `[rank, in, kh, kw]` and `[out, rank, 1, 1]`.

use super::layout::ParamLayout;
use super::lora::{Adapter, Factor};
use super::resolve::Adapters;
use super::targets::Module;
use anyhow::{Context, Result, ensure};
use weights::lora::LoraModule;

/// The modules of a file from `flat`, the trained numbers in the order of `layout`.
pub fn to_file(adapters: &Adapters, layout: &ParamLayout, flat: &[f32]) -> Result<Vec<LoraModule>> {
    ensure!(flat.len() == layout.elements(), "{} numbers are given for the {} of the adapters", flat.len(), layout.elements());
    adapters.iter().map(|adapter| module_to_file(adapter, layout, flat)).collect()
}

fn module_to_file(adapter: &Adapter, layout: &ParamLayout, flat: &[f32]) -> Result<LoraModule> {
    let numbers = |name: &str| {
        let param = layout.find(name).with_context(|| format!("{name} is not among the trained parameters"))?;
        Ok::<_, anyhow::Error>(&flat[param.range.clone()])
    };
    let [(down, _), (up, _)] = adapter.params();
    LoraModule::from_memory(&adapter.module.in_lora_file(), adapter.rank, adapter.alpha, numbers(&down)?, numbers(&up)?)
}

/// Adapters as a file has them (ranks and alphas are the file's), with their numbers sorted by name.
pub fn from_file(file: &[LoraModule], modules: &[Module], dropout: f32, strength: f32) -> Result<(Adapters, Vec<Factor>)> {
    let parts: Vec<(String, usize, f32)> = file.iter().map(|m| (m.module.clone(), m.rank(), m.alpha)).collect();
    let adapters = Adapters::of_file(&parts, modules, dropout, strength)?;
    let mut factors = Vec::new();
    for part in file {
        let adapter = adapters.get(&part.module).expect("every part of the file became an adapter");
        factors.extend(module_from_file(adapter, part)?);
    }
    factors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((adapters, factors))
}

fn module_from_file(adapter: &Adapter, part: &LoraModule) -> Result<[Factor; 2]> {
    let (module, rank) = (&adapter.module, adapter.rank);
    for (what, found, wanted) in
        [("lora_down", &part.down_shape, module.down_file_shape(rank)), ("lora_up", &part.up_shape, module.up_file_shape(rank))]
    {
        // A 1×1 convolution's factors stand as matrices in some files.
        let same = *found == wanted || (module.is_matrix() && found.squeezed_to(2) == wanted.squeezed_to(2));
        ensure!(same, "{what} of {} is {found} in the LoRA, but this model's module needs {wanted}", module.name);
    }
    let [(down, down_shape), (up, up_shape)] = adapter.params();
    Ok([Factor { name: down, shape: down_shape, data: part.down_in_memory() }, Factor { name: up, shape: up_shape, data: part.up.clone() }])
}

#[cfg(test)]
mod tests {
    use super::super::{AdapterSpec, Kind};
    use super::*;
    use base::Shape;

    fn modules() -> Vec<Module> {
        let module = |name: &str, kind| Module { name: name.into(), kind, inputs: 3, outputs: 5 };
        vec![
            module("unet.a.attentions.0.proj_in", Kind::Conv { kernel: [1, 1], stride: 1 }),
            module("unet.a.attentions.0.to_q", Kind::Linear),
            module("unet.a.resnets.0.conv1", Kind::Conv { kernel: [3, 3], stride: 1 }),
        ]
    }

    fn written() -> (Adapters, Vec<f32>, Vec<LoraModule>) {
        let spec = AdapterSpec { rank: 2, alpha: 1.0, conv_rank: Some(4), conv_alpha: Some(2.0), ..AdapterSpec::default() };
        let adapters = Adapters::resolve(&spec, &modules()).unwrap();
        let layout = ParamLayout::of(&adapters);
        let flat: Vec<f32> = (0..layout.elements()).map(|i| i as f32).collect();
        let file = to_file(&adapters, &layout, &flat).unwrap();
        (adapters, flat, file)
    }

    #[test]
    fn a_file_gives_back_adapters_and_numbers() {
        let (adapters, flat, file) = written();
        assert_eq!(file[2].down_shape, Shape::from([4, 3, 3, 3]));
        assert_eq!((file[0].up_shape.clone(), file[2].alpha), (Shape::from([5, 2, 1, 1]), 2.0));
        let (again, factors) = from_file(&file, &modules(), 0.0, 1.0).unwrap();
        assert_eq!(again, adapters);
        assert_eq!(ParamLayout::of(&again).flatten(&factors), flat);
    }

    #[test]
    fn a_part_of_another_size_is_refused_by_name() {
        let (_, _, mut file) = written();
        file[1].down_shape = Shape::from([2, 4]);
        let message = from_file(&file, &modules(), 0.0, 1.0).unwrap_err().to_string();
        assert!(message.contains("lora_down of unet.a.attentions.0.to_q") && message.contains("[2×3]"), "{message}");
    }
}
