//! The adapters of a model: a spec, or a LoRA file, resolved for the model's modules.

use super::lora::{Adapter, AdapterSpec, Factor};
use super::targets::{Module, Place};
use anyhow::{Context, Result, bail, ensure};
use base::nearest::nearest;
use std::collections::BTreeMap;

/// The adapters of a model, by module name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adapters(BTreeMap<String, Adapter>);

impl Adapters {
    /// The bare model.
    pub fn none() -> Adapters {
        Adapters::default()
    }

    /// Applies `spec` to the modules that a build without adapters noted. Refuses a spec of which a part has no effect.
    pub fn resolve(spec: &AdapterSpec, modules: &[Module]) -> Result<Adapters> {
        spec.check()?;
        let candidates: Vec<&Module> = modules.iter().filter(|m| rank_of(spec, m).is_some()).collect();
        for (key, patterns) in [("only_if_contains", &spec.only_if_contains), ("ignore_if_contains", &spec.ignore_if_contains)] {
            for pattern in patterns {
                ensure!(!pattern.is_empty(), "{key} holds an empty text, which every module name contains");
                if !candidates.iter().any(|m| contains(m, pattern)) {
                    bail!("{key}: no module's name contains \"{pattern}\"{}", hint(pattern, &candidates));
                }
            }
        }
        let any = |patterns: &[String], m: &Module| patterns.iter().any(|p| contains(m, p));
        let chosen = candidates
            .into_iter()
            .filter(|m| (spec.only_if_contains.is_empty() || any(&spec.only_if_contains, m)) && !any(&spec.ignore_if_contains, m));
        let adapter = |module: &Module| {
            let (rank, alpha) = rank_of(spec, module)?;
            Some(Adapter { module: module.clone(), rank, alpha, dropout: spec.dropout, strength: spec.strength })
        };
        let map: BTreeMap<String, Adapter> = chosen.filter_map(|m| Some((m.name.clone(), adapter(m)?))).collect();
        ensure!(!map.is_empty(), "only_if_contains and ignore_if_contains leave no module to train");
        Ok(Adapters(map))
    }

    /// Adapters as a LoRA file has them: (module, rank, alpha) each, for any module of the model.
    pub fn of_file(parts: &[(String, usize, f32)], modules: &[Module], dropout: f32, strength: f32) -> Result<Adapters> {
        let by_name: BTreeMap<&str, &Module> = modules.iter().map(|m| (m.name.as_str(), m)).collect();
        let mut map = BTreeMap::new();
        for (name, rank, alpha) in parts {
            let module = by_name.get(name.as_str()).with_context(|| {
                let hint = nearest(name, by_name.keys().copied()).map(|n| format!("; the nearest is {n}")).unwrap_or_default();
                format!("the LoRA has a part for {name}, which the model lacks{hint}")
            })?;
            ensure!(*rank > 0, "the LoRA's part for {name} has rank 0");
            let adapter = Adapter { module: (*module).clone(), rank: *rank, alpha: *alpha, dropout, strength };
            ensure!(map.insert(name.clone(), adapter).is_none(), "the LoRA has two parts for {name}");
        }
        Ok(Adapters(map))
    }

    pub fn get(&self, module: &str) -> Option<&Adapter> {
        self.0.get(module)
    }

    /// All adapters, by module name.
    pub fn iter(&self) -> impl Iterator<Item = &Adapter> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_dropout(&self) -> bool {
        self.iter().any(|a| a.dropout > 0.0)
    }

    /// The same adapters at another strength, and without dropout: for sampling.
    pub fn for_sampling(&self, strength: f32) -> Adapters {
        let still = |a: &Adapter| Adapter { strength, dropout: 0.0, ..a.clone() };
        Adapters(self.0.iter().map(|(name, a)| (name.clone(), still(a))).collect())
    }

    /// Only the adapters of one component (`unet`, `text_encoder`).
    pub fn of_component(&self, component: &str) -> Adapters {
        let inside = |name: &str| name.split('.').next() == Some(component);
        Adapters(self.0.iter().filter(|(name, _)| inside(name)).map(|(name, a)| (name.clone(), a.clone())).collect())
    }

    /// First numbers of every factor, sorted by name.
    pub fn init(&self, seed: u64) -> Vec<Factor> {
        let mut factors: Vec<Factor> = self.iter().flat_map(|a| a.init(seed)).collect();
        factors.sort_by(|a, b| a.name.cmp(&b.name));
        factors
    }
}

/// Rank and alpha that the rule gives a module, before the name filters.
fn rank_of(spec: &AdapterSpec, module: &Module) -> Option<(usize, f32)> {
    let linear = (spec.rank, spec.alpha);
    match module.place() {
        Place::UnetTransformer => spec.unet.then_some(linear),
        Place::UnetConvolutions => {
            let rank = spec.conv_rank.filter(|_| spec.unet)?;
            Some(if module.is_matrix() { linear } else { (rank, spec.conv_alpha.unwrap_or(rank as f32)) })
        }
        Place::TextEncoder => spec.text_encoder.then_some(linear),
        Place::Other => None,
    }
}

fn contains(module: &Module, pattern: &str) -> bool {
    module.name.contains(pattern) || module.kohya_name().contains(pattern)
}

/// The nearest stretch of a module name with as many parts as the pattern.
fn hint(pattern: &str, candidates: &[&Module]) -> String {
    let width = pattern.split('.').count();
    let stretches = candidates.iter().flat_map(|m| {
        let parts: Vec<&str> = m.name.split('.').collect();
        parts.windows(width.min(parts.len())).map(|w| w.join(".")).collect::<Vec<_>>()
    });
    let mut stretches: Vec<String> = stretches.collect();
    stretches.sort_unstable();
    stretches.dedup();
    let example = candidates.first().map(|m| format!("; a module is called {}", m.name)).unwrap_or_default();
    nearest(pattern, stretches.iter().map(String::as_str)).map(|n| format!("; the nearest is \"{n}\"")).unwrap_or(example)
}

#[cfg(test)]
mod tests {
    use super::super::targets::Kind;
    use super::*;
    use base::Shape;

    fn modules() -> Vec<Module> {
        let conv = |n| Kind::Conv { kernel: [n, n], stride: 1 };
        [
            ("unet.conv_in", conv(3), 4, 8),
            ("unet.down_blocks.0.attentions.0.proj_in", conv(1), 8, 8),
            ("unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q", Kind::Linear, 8, 8),
            ("unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k", Kind::Linear, 6, 8),
            ("unet.down_blocks.0.resnets.0.conv1", conv(3), 8, 16),
            ("unet.down_blocks.0.resnets.0.conv_shortcut", conv(1), 8, 16),
            ("unet.down_blocks.0.resnets.0.time_emb_proj", Kind::Linear, 32, 16),
            ("text_encoder.text_model.encoder.layers.0.self_attn.q_proj", Kind::Linear, 6, 6),
        ]
        .map(|(name, kind, inputs, outputs)| Module { name: name.into(), kind, inputs, outputs })
        .into()
    }

    fn names(adapters: &Adapters) -> Vec<&str> {
        adapters.iter().map(|a| a.module.name.rsplit('.').next().unwrap()).collect()
    }

    #[test]
    fn a_plain_lora_stays_in_the_transformers() {
        let adapters = Adapters::resolve(&AdapterSpec::default(), &modules()).unwrap();
        assert_eq!(names(&adapters), ["proj_in", "to_q", "to_k"]);
        let text = AdapterSpec { unet: false, text_encoder: true, ..AdapterSpec::default() };
        assert_eq!(names(&Adapters::resolve(&text, &modules()).unwrap()), ["q_proj"]);
    }

    #[test]
    fn a_convolution_rank_reaches_resnets_and_leaves_matrices_the_linear_rank() {
        let spec = AdapterSpec { conv_rank: Some(2), conv_alpha: Some(1.0), ..AdapterSpec::default() };
        let adapters = Adapters::resolve(&spec, &modules()).unwrap();
        let rank = |name: &str| adapters.get(&format!("unet.down_blocks.0.resnets.0.{name}")).map(|a| (a.rank, a.lora().scale));
        assert_eq!(rank("conv1"), Some((2, 0.5)));
        assert_eq!(rank("conv_shortcut"), Some((16, 1.0)));
        assert_eq!(rank("time_emb_proj"), Some((16, 1.0)));
        assert_eq!(adapters.get("unet.conv_in"), None);
    }

    #[test]
    fn filters_match_both_kinds_of_name_and_a_filter_without_effect_is_an_error() {
        let resolve = |only: &[&str], ignore: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
            let spec = AdapterSpec { only_if_contains: texts(only), ignore_if_contains: texts(ignore), ..AdapterSpec::default() };
            Adapters::resolve(&spec, &modules())
        };
        assert_eq!(names(&resolve(&["attn1"], &[]).unwrap()), ["to_q"]);
        assert_eq!(names(&resolve(&["lora_unet_down_blocks_0"], &["attn2.to_k"]).unwrap()), ["proj_in", "to_q"]);
        let message = resolve(&["atn2.to_k"], &[]).unwrap_err().to_string();
        assert!(message.contains("only_if_contains") && message.contains("\"attn2.to_k\""), "{message}");
        assert!(resolve(&[], &["q_proj"]).unwrap_err().to_string().contains("ignore_if_contains"));
        assert!(resolve(&["attn1"], &["to_q"]).unwrap_err().to_string().contains("no module to train"));
    }

    #[test]
    fn factors_start_uniform_and_zero_and_depend_on_seed_and_name_only() {
        let spec = AdapterSpec { conv_rank: Some(2), ..AdapterSpec::default() };
        let all = Adapters::resolve(&spec, &modules()).unwrap();
        let few = Adapters::resolve(&AdapterSpec { only_if_contains: vec!["to_q".into()], ..spec }, &modules()).unwrap();
        let (a, b) = (all.init(5), few.init(5));
        let find = |list: &[Factor], name: &str| list.iter().find(|f| f.name.ends_with(name)).unwrap().clone();
        assert_eq!(find(&a, "to_q.lora_down"), find(&b, "to_q.lora_down"));
        assert_ne!(find(&a, "to_q.lora_down").data, find(&few.init(6), "to_q.lora_down").data);
        assert!(find(&a, "to_q.lora_up").data.iter().all(|v| *v == 0.0));
        let conv = find(&a, "conv1.lora_down");
        assert_eq!(conv.shape, Shape::from([2, 3, 3, 8]));
        let bound = 1.0 / 72f32.sqrt();
        let most = conv.data.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(most <= bound && most > 0.9 * bound, "{most} against {bound}");
        assert!(a.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn parts_of_a_file_must_exist_in_the_model() {
        let part = |name: &str| (name.to_string(), 4, 4.0);
        let adapters = Adapters::of_file(&[part("unet.conv_in")], &modules(), 0.0, 0.5).unwrap();
        assert_eq!(adapters.get("unet.conv_in").unwrap().lora().scale, 0.5);
        let message = Adapters::of_file(&[part("unet.conv_im")], &modules(), 0.0, 1.0).unwrap_err().to_string();
        assert!(message.contains("nearest is unet.conv_in"), "{message}");
    }
}
