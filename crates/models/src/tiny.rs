//! Random-weight models of a few megabytes in diffusers layout, for tests and for trying a set-up. They paint noise.
//!
//! Sizes are such that a single file of the same weights, which has no configs, gives the same model: SD 1.x with 8 heads, SD 2.x with
//! heads of 64 channels, 32 groups. The same architecture and seed give the same bytes.

use crate::adapters::Module;
use crate::{ClipConfig, StableDiffusion, UnetConfig, VaeConfig, shapes};
use anyhow::{Context, Result, bail};
use base::{DType, Rng, Shape};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use weights::Family;
use weights::safetensors::{Entry, write};

/// The names that [`make_tiny`] knows.
pub const ARCHITECTURES: [&str; 2] = ["sd15", "sd21"];

/// File name (below `tokenizer/`) and content of the 2,000-token vocabulary that tiny models share.
const TOKENIZER: [(&str, &[u8]); 5] = [
    ("tokenizer.json", include_bytes!("../../../assets/tiny-emoji/tokenizer/tokenizer.json")),
    ("vocab.json", include_bytes!("../../../assets/tiny-emoji/tokenizer/vocab.json")),
    ("merges.txt", include_bytes!("../../../assets/tiny-emoji/tokenizer/merges.txt")),
    ("tokenizer_config.json", include_bytes!("../../../assets/tiny-emoji/tokenizer/tokenizer_config.json")),
    ("special_tokens_map.json", include_bytes!("../../../assets/tiny-emoji/tokenizer/special_tokens_map.json")),
];

/// Tokens of the vocabulary above; the last two are start and end.
const VOCAB: usize = 2000;
const CHUNK: usize = 77;

/// Component → (config, name of its weight file).
struct Parts {
    family: Family,
    unet: Value,
    vae: Value,
    text_encoder: Value,
    scheduler: Value,
}

/// Writes a model of `arch` (`sd15` or `sd21`) into the folder `dir`, which is made if needed.
pub fn make_tiny(arch: &str, dir: &Path, seed: u64) -> Result<()> {
    let parts = match arch {
        "sd15" => sd15(),
        "sd21" => sd21(),
        _ => bail!("there is no tiny model \"{arch}\"; there are {}", ARCHITECTURES.join(" and ")),
    };
    let model = StableDiffusion {
        family: parts.family,
        unet: UnetConfig::from_json(&parts.unet)?,
        vae: VaeConfig::from_json(&parts.vae)?,
        text_encoder: ClipConfig::from_json(&parts.text_encoder)?,
    };
    let tensors = file_shapes(&model);
    let weights = [("unet", "diffusion_pytorch_model"), ("vae", "diffusion_pytorch_model"), ("text_encoder", "model")];
    for ((component, stem), config) in weights.into_iter().zip([&parts.unet, &parts.vae, &parts.text_encoder]) {
        write_json(&dir.join(component), "config.json", config)?;
        let entries = random_weights(&tensors, component, seed)?;
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        write(&dir.join(component).join(format!("{stem}.safetensors")), &entries, &metadata)?;
    }
    write_json(&dir.join("scheduler"), "scheduler_config.json", &parts.scheduler)?;
    write_tokenizer(&dir.join("tokenizer"), parts.family)?;
    write_json(dir, "model_index.json", &model_index())
}

/// Every weight with its shape in files.
fn file_shapes(model: &StableDiffusion) -> BTreeMap<String, Shape> {
    let modules = model.all_modules();
    let kernels: BTreeMap<String, &Module> = modules.iter().map(|m| (format!("{}.weight", m.name), m)).collect();
    let mut all = BTreeMap::new();
    for graph in model.graphs() {
        for (name, id) in graph.weights() {
            let shape = kernels.get(name).map_or_else(|| shapes::file_form(&graph.meta(id).shape), |m| m.weight_file_shape());
            all.insert(name.to_owned(), shape);
        }
    }
    all
}

/// Matrices and kernels that keep the spread of what they multiply; biases near 0; scales of normalisation near 1.
fn random_weights(tensors: &BTreeMap<String, Shape>, component: &str, seed: u64) -> Result<Vec<Entry<'static>>> {
    let start = format!("{component}.");
    let own = tensors.iter().filter_map(|(name, shape)| Some((name, name.strip_prefix(&start)?, shape)));
    own.map(|(name, key, shape)| {
        let mut rng = Rng::new(seed, "tiny model", &[base::rng::name_word(name)]);
        let (mean, spread) = match shape.rank() {
            1 if name.ends_with(".weight") => (1.0, 0.05),
            1 => (0.0, 0.05),
            _ => (0.0, 1.0 / (shape.elements() as f32 / shape.batch() as f32).sqrt()),
        };
        let values: Vec<f32> = (0..shape.elements()).map(|_| mean + spread * rng.normal()).collect();
        let bytes = base::dtype::from_f32(DType::F16, &values).context("f16 holds floats")?;
        Ok(Entry { name: key.to_owned(), dtype: DType::F16, shape: shape.clone(), bytes: Cow::Owned(bytes) })
    })
    .collect()
}

fn write_json(dir: &Path, name: &str, value: &Value) -> Result<()> {
    base::fs::create_dir(dir)?;
    let text = serde_json::to_string_pretty(value).context("a JSON value is always text")?;
    base::fs::write_atomic(&dir.join(name), format!("{text}\n").as_bytes())
}

/// SD 2.x pads with token 0, and says so in `special_tokens_map.json`.
fn write_tokenizer(dir: &Path, family: Family) -> Result<()> {
    base::fs::create_dir(dir)?;
    for (name, content) in TOKENIZER {
        if !name.ends_with("config.json") && name != "special_tokens_map.json" {
            base::fs::write_atomic(&dir.join(name), content)?;
            continue;
        }
        let mut json: Value = serde_json::from_slice(content).with_context(|| format!("the embedded {name} is damaged"))?;
        if name == "tokenizer_config.json" {
            json["model_max_length"] = json!(CHUNK);
        }
        if family == Family::Sd2 {
            json["pad_token"] = json!("!");
        }
        write_json(dir, name, &json)?;
    }
    Ok(())
}

fn sd15() -> Parts {
    let mut unet = unet(&[32, 64]);
    unet["attention_head_dim"] = json!(8);
    Parts { family: Family::Sd1, unet, vae: vae(), text_encoder: text_encoder("quick_gelu", VOCAB - 1), scheduler: scheduler("epsilon") }
}

fn sd21() -> Parts {
    let mut unet = unet(&[64, 128]);
    unet["attention_head_dim"] = json!([1, 2]);
    unet["use_linear_projection"] = json!(true);
    Parts { family: Family::Sd2, unet, vae: vae(), text_encoder: text_encoder("gelu", 0), scheduler: scheduler("v_prediction") }
}

fn unet(channels: &[usize]) -> Value {
    json!({
        "_class_name": "UNet2DConditionModel", "act_fn": "silu", "block_out_channels": channels, "center_input_sample": false,
        "cross_attention_dim": 64, "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "downsample_padding": 1,
        "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4, "layers_per_block": 1, "mid_block_scale_factor": 1,
        "norm_eps": 1e-5, "norm_num_groups": 32, "out_channels": 4, "sample_size": 16,
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "use_linear_projection": false
    })
}

fn vae() -> Value {
    json!({
        "_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [32, 32, 32, 64],
        "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
        "in_channels": 3, "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 32, "out_channels": 3, "sample_size": 128,
        "scaling_factor": 0.18215,
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]
    })
}

fn text_encoder(activation: &str, pad: usize) -> Value {
    json!({
        "architectures": ["CLIPTextModel"], "attention_dropout": 0.0, "bos_token_id": VOCAB - 2, "eos_token_id": VOCAB - 1,
        "hidden_act": activation, "hidden_size": 64, "intermediate_size": 256, "layer_norm_eps": 1e-5,
        "max_position_embeddings": CHUNK, "model_type": "clip_text_model", "num_attention_heads": 1, "num_hidden_layers": 3,
        "pad_token_id": pad, "projection_dim": 64, "vocab_size": VOCAB
    })
}

fn scheduler(prediction: &str) -> Value {
    json!({
        "_class_name": "DDIMScheduler", "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false,
        "num_train_timesteps": 1000, "prediction_type": prediction, "set_alpha_to_one": false, "steps_offset": 1, "trained_betas": null
    })
}

fn model_index() -> Value {
    json!({
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0",
        "feature_extractor": [null, null], "image_encoder": [null, null],
        "requires_safety_checker": false, "safety_checker": [null, null],
        "scheduler": ["diffusers", "DDIMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shapes;
    use crate::clip::ClipTokenizer;
    use weights::Checkpoint;

    #[test]
    fn both_architectures_open_as_models_and_their_shapes_alone_give_the_same_sizes() {
        for (arch, family) in [("sd15", Family::Sd1), ("sd21", Family::Sd2)] {
            let dir = tempfile::tempdir().unwrap();
            make_tiny(arch, dir.path(), 1).unwrap();
            let checkpoint = Checkpoint::open(dir.path()).unwrap();
            assert!(checkpoint.unused().is_empty(), "{:?}", checkpoint.unused());
            let model = StableDiffusion::of_checkpoint(&checkpoint).unwrap();
            let shapes = Shapes::of_checkpoint(&checkpoint);
            assert_eq!(model.family, family);
            assert!(model.unknown_keys().is_empty(), "{:?}", model.unknown_keys());
            assert_eq!(UnetConfig::from_shapes(&shapes, family).unwrap(), model.unet);
            assert_eq!(VaeConfig::from_shapes(&shapes).unwrap(), model.vae);
            assert_eq!(ClipConfig::from_shapes(&shapes, family).unwrap(), model.text_encoder);
            let tokenizer = ClipTokenizer::from_dir(&dir.path().join("tokenizer"), &model.text_encoder).unwrap();
            let pad = if family == Family::Sd1 { VOCAB as u32 - 1 } else { 0 };
            assert_eq!(tokenizer.empty_chunk()[..3], [VOCAB as u32 - 2, VOCAB as u32 - 1, pad]);
            assert_eq!(tokenizer.empty_chunk().len(), CHUNK);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let bytes = |seed: u64| {
            let dir = tempfile::tempdir().unwrap();
            make_tiny("sd15", dir.path(), seed).unwrap();
            std::fs::read(dir.path().join("unet/diffusion_pytorch_model.safetensors")).unwrap()
        };
        assert!(bytes(1) == bytes(1) && bytes(1) != bytes(2));
        let message = make_tiny("sd3", Path::new("."), 1).unwrap_err().to_string();
        assert!(message.contains("sd15 and sd21"), "{message}");
    }
}
