//! Which of a component folder's files hold its weights: the rule for folders on disk and for repositories on the hub.
//!
//! Plain names are preferred to `fp16` ones, a single file to shards; pickles are never chosen.

/// File-name stems that diffusers and transformers use.
const STEMS: &[&str] = &["diffusion_pytorch_model", "model"];
/// Infixes in order of preference.
const VARIANTS: &[&str] = &["", ".fp16"];

/// The chosen files of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightFiles {
    Single(String),
    /// An index (`*.index.json`) whose `weight_map` names the shards.
    Sharded {
        index: String,
        /// Those files of the folder that can be shards of this index.
        shards: Vec<String>,
    },
}

/// Chooses among the names of the files in a component's folder (no paths); `None` if none can be read.
pub fn choose<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<WeightFiles> {
    for variant in VARIANTS {
        for stem in STEMS {
            let single = format!("{stem}{variant}.safetensors");
            if names.clone().any(|name| name == single) {
                return Some(WeightFiles::Single(single));
            }
            let indexes = [format!("{stem}{variant}.safetensors.index.json"), format!("{stem}.safetensors.index{variant}.json")];
            if let Some(index) = indexes.into_iter().find(|index| names.clone().any(|name| name == index)) {
                let shards = names.clone().filter(|name| is_shard(name, stem, variant)).map(str::to_owned).collect();
                return Some(WeightFiles::Sharded { index, shards });
            }
        }
    }
    None
}

/// `model-00001-of-00002.safetensors`, `model.fp16-00001-of-00002.safetensors` or `model-00001-of-00002.fp16.safetensors`.
fn is_shard(name: &str, stem: &str, variant: &str) -> bool {
    let Some(rest) = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".safetensors")) else { return false };
    let rest = rest.strip_prefix(variant).or_else(|| rest.strip_suffix(variant));
    rest.is_some_and(|rest| rest.starts_with('-') && rest.contains("-of-") && !rest.contains('.'))
}

/// The file names of weights that are there but can't be read, for the message that says so.
pub fn pickles<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.filter(|name| name.ends_with(".bin") || name.ends_with(".ckpt") || name.ends_with(".pt") || name.ends_with(".pth")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Option<WeightFiles> {
        choose(names.iter().copied())
    }

    #[test]
    fn plain_names_come_before_fp16_and_pickles_are_never_taken() {
        let all = [
            "config.json",
            "diffusion_pytorch_model.bin",
            "diffusion_pytorch_model.fp16.safetensors",
            "diffusion_pytorch_model.safetensors",
        ];
        assert_eq!(chosen(&all), Some(WeightFiles::Single("diffusion_pytorch_model.safetensors".to_owned())));
        assert_eq!(chosen(&all[..3]), Some(WeightFiles::Single("diffusion_pytorch_model.fp16.safetensors".to_owned())));
        assert_eq!(chosen(&all[..2]), None);
        assert_eq!(chosen(&["diffusion_pytorch_model.non_ema.safetensors"]), None);
    }

    #[test]
    fn shards_of_the_other_variant_are_left_out() {
        let names = [
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.fp16-00001-of-00001.safetensors",
            "model-00001-of-00001.fp16.safetensors",
        ];
        let shards = names[1..3].iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(chosen(&names), Some(WeightFiles::Sharded { index: names[0].to_owned(), shards }));
        let half = ["model.safetensors.index.fp16.json", names[4], names[3]];
        let shards = vec![names[4].to_owned(), names[3].to_owned()];
        assert_eq!(chosen(&half), Some(WeightFiles::Sharded { index: half[0].to_owned(), shards }));
    }
}
