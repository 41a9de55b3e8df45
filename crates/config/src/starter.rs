//! `velatura config init`: a first config, with comments, for the model that it is given.

use crate::Prediction;
use crate::run::check_name;
use std::path::Path;

/// What is known when the config is written.
pub struct Starter<'a> {
    /// As it is to stand in `model.name_or_path`.
    pub model: &'a str,
    /// What the model is, for a comment; empty if nobody has looked.
    pub family: &'a str,
    /// Written down if the model needs it.
    pub prediction: Option<Prediction>,
    /// Whether the model's files say it themselves.
    pub prediction_is_known: bool,
    /// As it is to stand in `datasets[0].folder_path`.
    pub dataset: &'a str,
    /// Side of the pictures that the base model was made for.
    pub resolution: u32,
}

impl Starter<'_> {
    /// The config's text.
    pub fn to_yaml(&self) -> String {
        let name = self.name();
        let family = if self.family.is_empty() { "a file, a diffusers folder, or a Hugging Face id" } else { self.family };
        let side = self.resolution;
        format!(
            "\
# What this would do, and the memory that it takes: velatura plan FILE. All keys: docs/config.md
name: {name}
training_folder: output          # the run's files go to output/{bare}/
seed: 42
trigger_word: \"\"                 # a word for what is learned; goes in front of every caption that lacks it

model:
  name_or_path: {model}   # {family}
{prediction}
network:
  type: lora                     # or locon: convolutions too
  linear: 16                     # rank; more can hold more, and makes a larger file
  linear_alpha: 16               # strength is linear_alpha / linear

datasets:
  - folder_path: {dataset}   # pictures; captions beside them (cat.png, cat.txt)
    caption_ext: txt
    resolution: {side:<15}  # or a list; pictures keep their aspect ratio in buckets
    caption_dropout_rate: 0.05   # share of the steps that see a picture without its caption
    num_repeats: 1

train:
  steps: 1500                    # or epochs: 10
  batch_size: 1
  lr: 1e-4
  lr_scheduler: cosine
  lr_warmup_steps: 50
  optimizer: adamw               # adamw8bit keeps its state in a quarter of the memory
  dtype: bf16
  train_text_encoder: false
  gradient_checkpointing: true   # less memory for some time; or a list of blocks

save:
  save_every: 250                # 0: only at the end
  max_step_saves_to_keep: 4

sample:
  sample_every: 250              # 0: only at the end
  width: {side}
  height: {side}
  sample_steps: 20
  guidance_scale: 7
  prompts:
    - \"[trigger] a castle on a hill\"
",
            name = scalar(&name),
            bare = name,
            model = scalar(self.model),
            dataset = scalar(self.dataset),
            prediction = self.prediction_line(),
        )
    }

    fn prediction_line(&self) -> String {
        let name = match self.prediction {
            None => return String::new(),
            Some(Prediction::Epsilon) => "epsilon",
            Some(Prediction::VPrediction) => "v_prediction",
        };
        let remark = match self.prediction_is_known {
            true => "as the model's files say",
            false => "CHECK: the file does not say. 768 px models: v_prediction; 512 px base models: epsilon",
        };
        format!("  prediction_type: {name:<13} # {remark}\n")
    }

    /// The folder of the pictures names the run, if files can be named so.
    fn name(&self) -> String {
        let folder = Path::new(self.dataset.trim_end_matches(['/', '\\'])).file_name().map(|name| name.to_string_lossy().into_owned());
        let plain = folder.and_then(|name| check_name(&name).ok());
        plain.filter(|name| name != "pictures").unwrap_or_else(|| "my-lora".to_string())
    }
}

/// A text as a YAML scalar: plain where it can't be mistaken for anything else, else in double quotes.
pub(crate) fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    // JSON's escapes are YAML's.
    if plain { text.to_string() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_is_a_config_whatever_the_paths_are_called() {
        for (dataset, name) in [
            ("/data/red cats", "red cats"),
            ("rel/x/", "x"),
            ("C:\\bilder\\kätzchen", if cfg!(windows) { "kätzchen" } else { "my-lora" }),
            ("/a: b/# \"quoted\" 'n\\o", "my-lora"),
            ("/data/CON", "my-lora"),
            ("/data/null", "null"),
            ("/path/to/pictures", "my-lora"),
            ("/猫", "猫"),
        ] {
            let starter = Starter {
                model: "/m/sd v1: x#.safetensors",
                family: "an SD 1.x checkpoint",
                prediction: None,
                prediction_is_known: true,
                dataset,
                resolution: 512,
            };
            let text = starter.to_yaml();
            let loaded = crate::load(text.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
            assert!(loaded.notices.is_empty(), "{:?}", loaded.notices);
            let config = loaded.config;
            assert_eq!((config.name.as_str(), config.model.name_or_path.as_str()), (name, "/m/sd v1: x#.safetensors"));
            assert_eq!(config.datasets[0].folder_path, Path::new(dataset));
            assert_eq!(config.datasets[0].resolution, [512]);
        }
    }

    #[test]
    fn what_the_model_predicts_is_written_where_it_is_no_matter_of_course() {
        let text = |prediction, prediction_is_known| {
            Starter { model: "m", family: "", prediction, prediction_is_known, dataset: "d", resolution: 768 }.to_yaml()
        };
        assert!(!text(None, true).contains("prediction_type"));
        assert!(text(Some(Prediction::VPrediction), false).contains("CHECK"));
        let said = text(Some(Prediction::VPrediction), true);
        assert!(!said.contains("CHECK"));
        let config = crate::load(said.as_bytes(), "c.yaml", &[]).unwrap().config;
        assert_eq!(config.model.prediction_type, Some(Prediction::VPrediction));
        assert_eq!(config.datasets[0].resolution, [768]);
        assert_eq!(config.sample.width, 768);
    }
}
