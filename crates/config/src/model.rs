//! `model:` the base model that stays frozen.

use crate::findings::Findings;
use crate::scalar::{Flag, Number, Whole};
use crate::section::section;
use crate::{path, qtype, run};
use anyhow::{Context, Result, bail, ensure};
use base::DType;
use base::quantized::Scheme;
use serde::{Serialize, Serializer};

section! {
    RawModel {
        /// Folder (diffusers layout), single file, or Hugging Face id `owner/name`.
        #[serde(alias = "path")]
        name_or_path: String,
        /// Type that the base weights are held in; default: `train.dtype`, or the file's type if that is narrower.
        dtype: String,
        /// Another VAE than the model's own.
        vae_path: String,
        /// Family that the model is expected to be (`sd1`, `sd2`, …); checked against the file.
        arch: String,
        /// `epsilon` or `v_prediction`; default: what the model's files say.
        prediction_type: String,
        /// true: `prediction_type: v_prediction`.
        is_v_pred: Flag,
        /// true: `arch: sd2`.
        is_v2: Flag,
        /// 1: the text encoder's last layer; 2: the one before it; …
        clip_skip: Whole,
        /// Whether the matrices of the UNet are kept in fewer bits; see `qtype`.
        quantize: Flag,
        /// What they are kept as: `qint8` (default) or `nf4`.
        qtype: String,
        /// The same for the text encoder where it is part of the training; default: as `quantize`.
        quantize_te: Flag,
        /// Default: as `qtype`.
        qtype_te: String,
        /// Of older files: `train.optimizer` in its 8-bit form.
        use_8bit_optimizer: Flag,
    }
    no effect {
        enable_xformers: Flag => "attention has one implementation",
        low_vram: Flag => "memory is planned, see the section memory",
        text_encoder_bits: Whole => "text-encoder weights are held as model.dtype and model.quantize_te say",
        vae_device: String => "there is one device",
        vae_dtype: String => "the VAE computes in a type that is safe for it",
        te_device: String => "there is one device",
        te_dtype: String => "text-encoder weights are held as model.dtype and model.quantize_te say",
        layer_offloading: Flag => "memory is planned, see the section memory",
        layer_offloading_transformer_percent: Number => "memory is planned, see the section memory",
        layer_offloading_text_encoder_percent: Number => "memory is planned, see the section memory",
        auto_memory: Flag => "memory is planned, see the section memory",
        compile: Flag => "the computation is always a planned graph",
        block_compile: Flag => "the computation is always a planned graph",
        compile_mode: String => "the computation is always a planned graph",
        compile_fullgraph: Flag => "the computation is always a planned graph",
        compile_dynamic: Flag => "the computation is always a planned graph",
        split_model_over_gpus: Flag => "there is one device",
        split_model_other_module_param_count_scale: Number => "there is one device",
        attn_masking: Flag => "it belongs to another family of models",
        use_text_encoder_1: Flag => "the model has one text encoder",
        use_text_encoder_2: Flag => "the model has one text encoder",
    }
    not yet {
        is_xl: false, is_flux: false, is_v3: false, is_lumina2: false, is_pixart: false, is_auraflow: false, is_ssd: false, is_vega: false,
        refiner_name_or_path: "", lora_path: "", assistant_lora_path: "", inference_lora_path: "", unconditional_lora_path: "",
        unet_path: "", te_name_or_path: "", extras_name_or_path: "", accuracy_recovery_adapter: "", model_kwargs: "", model_paths: "",
        ignore_if_contains: "", only_if_contains: "",
    }
}

/// What the network predicts: the noise, or the velocity of "Progressive Distillation" (Salimans & Ho, 2022).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Prediction {
    Epsilon,
    VPrediction,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    pub name_or_path: String,
    /// `None`: `train.dtype`, or the file's own type if that is narrower.
    #[serde(serialize_with = "optional_dtype")]
    pub dtype: Option<DType>,
    pub vae_path: Option<String>,
    pub arch: Option<String>,
    /// `None`: what the model's files say.
    pub prediction_type: Option<Prediction>,
    pub clip_skip: usize,
    pub quantize: bool,
    /// Counts only with `quantize`.
    #[serde(serialize_with = "qtype::serialize")]
    pub qtype: Scheme,
    pub quantize_te: bool,
    /// Counts only with `quantize_te`.
    #[serde(serialize_with = "qtype::serialize")]
    pub qtype_te: Scheme,
}

impl ModelConfig {
    /// A model with nothing else said about it.
    pub fn named(name_or_path: String) -> ModelConfig {
        ModelConfig {
            name_or_path,
            dtype: None,
            vae_path: None,
            arch: None,
            prediction_type: None,
            clip_skip: 1,
            quantize: false,
            qtype: Scheme::Int8,
            quantize_te: false,
            qtype_te: Scheme::Int8,
        }
    }
}

pub(crate) fn resolve(raw: RawModel, findings: &mut Findings) -> ModelConfig {
    raw.check_foreign("model", findings);
    let given = [raw.quantize.is_some(), raw.quantize.is_some() || raw.quantize_te.is_some()];
    let quantize = raw.quantize.is_some_and(|flag| flag.0);
    let quantize_te = raw.quantize_te.map_or(quantize, |flag| flag.0);
    let mut scheme = |quantize: bool, key: &str, name: Option<&str>, unnamed| {
        // What is not used is not read: a type that this version lacks does no harm then.
        let read = if quantize { qtype::read(key, name, unnamed, findings) } else { Ok(unnamed) };
        findings.or(read, unnamed)
    };
    let qtype = scheme(quantize, "model.qtype", raw.qtype.as_deref(), Scheme::Int8);
    // Where both are quantized, one name is enough for both.
    let name_te = raw.qtype_te.as_deref().or(if quantize && quantize_te { Some(qtype::canonical(qtype)) } else { None });
    let qtype_te = scheme(quantize_te, "model.qtype_te", name_te, qtype);
    for (switch, key, name, is_given) in
        [("model.quantize", "model.qtype", raw.qtype, given[0]), ("model.quantize_te", "model.qtype_te", raw.qtype_te, given[1])]
    {
        // Beside a switch that is off it is what ai-toolkit's files hold anyway; beside none it is a wish that would go unheard.
        if let Some(name) = run::text(name).filter(|_| !is_given) {
            findings.notice(format!("{key}: {name} has no effect without {switch}: true"));
        }
    }
    let name = raw.name_or_path.as_deref().context("model.name_or_path is missing: a folder, a file, or a Hugging Face id");
    let dtype = raw.dtype.as_deref().filter(|d| *d != "auto").map(|d| read_dtype("model.dtype", d)).transpose();
    let vae_path = run::text(raw.vae_path).map(|p| path::read_text("model.vae_path", &p)).transpose();
    ModelConfig {
        name_or_path: findings.or(name.and_then(|name| path::read_text("model.name_or_path", name)), String::new()),
        dtype: findings.or(dtype, None),
        vae_path: findings.or(vae_path, None),
        arch: findings.or(arch(raw.arch, raw.is_v2.is_some_and(|flag| flag.0)), None),
        prediction_type: findings.or(prediction(raw.prediction_type.as_deref(), raw.is_v_pred.map(|f| f.0)), None),
        clip_skip: findings.or(clip_skip(raw.clip_skip), 1),
        quantize,
        qtype,
        quantize_te,
        qtype_te,
    }
}

/// The families that can be trained, and what else they are called.
const ARCHES: [(&str, &[&str]); 2] = [("sd1", &["sd", "sd15", "sd1.5", "sd_1.5"]), ("sd2", &["sd20", "sd21", "sd2.0", "sd2.1"])];

fn arch(arch: Option<String>, is_v2: bool) -> Result<Option<String>> {
    let Some(name) = run::text(arch) else { return Ok(is_v2.then(|| "sd2".to_string())) };
    let lower = name.to_lowercase();
    let family = ARCHES.iter().find(|(family, others)| *family == lower || others.contains(&&*lower)).map(|(family, _)| *family);
    let family = family.with_context(|| {
        format!("model.arch: {name} is not supported by this version; sd1 and sd2 are (leave it out: the family is read from the model)")
    })?;
    ensure!(!is_v2 || family == "sd2", "model.arch: {name} contradicts model.is_v2: true");
    Ok(Some(family.to_string()))
}

fn clip_skip(skip: Option<Whole>) -> Result<usize> {
    let skip = skip.map_or(1, |skip| skip.0);
    ensure!((1..=12).contains(&skip), "model.clip_skip: {skip} is not between 1 (the last layer) and 12");
    Ok(skip as usize)
}

fn prediction(name: Option<&str>, is_v: Option<bool>) -> Result<Option<Prediction>> {
    let named = match name {
        None => None,
        Some("epsilon" | "eps") => Some(Prediction::Epsilon),
        Some("v_prediction" | "v") => Some(Prediction::VPrediction),
        Some(other) => bail!("model.prediction_type: {other} is unknown; it is epsilon or v_prediction"),
    };
    match (named, is_v) {
        (Some(Prediction::Epsilon), Some(true)) => bail!("model.prediction_type: epsilon contradicts model.is_v_pred: true"),
        (None, Some(true)) => Ok(Some(Prediction::VPrediction)),
        (named, _) => Ok(named),
    }
}

/// A float type by any of the names in use.
pub(crate) fn read_dtype(key: &str, name: &str) -> Result<DType> {
    DType::parse(name.trim()).with_context(|| format!("{key}: {name} is not a float type; use fp32, bf16 or fp16"))
}

/// The names that configs use.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "fp32",
        DType::BF16 => "bf16",
        DType::F16 => "fp16",
        DType::U32 => "u32",
        DType::U8 => "u8",
        DType::Quantized(scheme) => scheme.name(),
    }
}

pub(crate) fn dtype<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype_name(*dtype))
}

fn optional_dtype<S: Serializer>(dtype: &Option<DType>, serializer: S) -> Result<S::Ok, S::Error> {
    match dtype {
        Some(dtype) => serializer.serialize_str(dtype_name(*dtype)),
        None => serializer.serialize_none(),
    }
}
