//! What a LoRA file says about itself, in the vocabularies that other programs read. Every value is a string.
//!
//! - `ss_*`: sd-scripts' training record, shown by web UIs; `ss_base_model_version` decides where a LoRA is listed.
//! - `modelspec.*`: Stability's model metadata standard 1.0.1.
//! - `sshs_*`: hashes over the tensors, by which UIs index files.
//!
//! Files are published, so names of folders and models are cut to their last part: no local path gets out.

use crate::family::Family;
use crate::safetensors::{Entry, file_order, serialize_header};
use anyhow::Result;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The tag statistics' share of a header; whole headers should stay well under 1 MB to load everywhere.
const TAG_FREQUENCY_LIMIT_BYTES: usize = 512 * 1024;

/// How often each tag occurs, per dataset folder.
pub type TagFrequency = BTreeMap<String, BTreeMap<String, u64>>;

/// What is known about a training run. Fields that are `None` or empty are left out.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub family: Option<Family>,
    pub v_prediction: bool,
    /// Name of the LoRA, as in its file name.
    pub output_name: String,
    /// Name or path of the base model.
    pub base_model: String,
    pub network_dim: usize,
    pub network_alpha: f32,
    pub network_dropout: Option<f32>,
    /// Further network settings (`conv_dim`, …).
    pub network_args: BTreeMap<String, String>,
    pub learning_rate: f64,
    pub unet_learning_rate: Option<f64>,
    pub text_encoder_learning_rate: Option<f64>,
    pub optimizer: String,
    pub lr_scheduler: String,
    pub lr_warmup_steps: u64,
    pub max_grad_norm: Option<f64>,
    /// Steps done when the file was written, and planned in all.
    pub steps: u64,
    pub max_steps: u64,
    pub epoch: u64,
    pub num_epochs: u64,
    pub seed: u64,
    pub batch_size: u64,
    pub gradient_accumulation_steps: u64,
    pub gradient_checkpointing: bool,
    pub mixed_precision: String,
    pub objective: Objective,
    /// Where all datasets have the same.
    pub caption_dropout_rate: Option<f64>,
    pub caption_tag_dropout_rate: Option<f64>,
    pub clip_skip: Option<u64>,
    /// [width, height] in pixels.
    pub resolution: [u64; 2],
    pub num_train_images: u64,
    pub tag_frequency: TagFrequency,
    /// Dataset folders (names or paths) with their repeats and number of images.
    pub dataset_dirs: Vec<(String, u64, u64)>,
    /// Seconds since 1970, UTC. Without them the same run gives the same file.
    pub started_at: Option<f64>,
    pub finished_at: Option<f64>,
    /// Words that call the LoRA's subject up.
    pub trigger_phrase: Option<String>,
    pub comment: Option<String>,
}

/// What was minimised, in sd-scripts' words.
#[derive(Clone, Debug, Default)]
pub struct Objective {
    /// `l2`, `l1`, `huber`, `smooth_l1`, or another program's name of a loss that sd-scripts lacks.
    pub loss_type: String,
    pub huber: Option<HuberFacts>,
    pub min_snr_gamma: Option<f64>,
    pub debiased_estimation: bool,
    pub prior_loss_weight: f64,
    pub noise_offset: Option<f64>,
    pub adaptive_noise_scale: Option<f64>,
    pub multires_noise: Option<MultiresNoise>,
    pub ip_noise_gamma: Option<f64>,
    pub zero_terminal_snr: bool,
}

/// How the threshold of a Huber loss was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct HuberFacts {
    pub schedule: String,
    pub c: f64,
    pub scale: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiresNoise {
    pub iterations: usize,
    pub discount: f64,
}

/// The metadata of a finished (or saved) LoRA.
pub fn build(facts: &Facts) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    training_record(facts, &mut out);
    objective_record(&facts.objective, &mut out);
    dataset_record(facts, &mut out);
    model_spec(facts, &mut out);
    out.retain(|_, value| !value.is_empty());
    out
}

fn put(out: &mut BTreeMap<String, String>, key: &str, value: impl ToString) {
    out.insert(key.to_owned(), value.to_string());
}

fn put_some(out: &mut BTreeMap<String, String>, key: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        put(out, key, value);
    }
}

/// Python's spelling, which readers of `ss_*` expect.
fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn training_record(facts: &Facts, out: &mut BTreeMap<String, String>) {
    put(out, "ss_network_module", "networks.lora");
    put(out, "ss_network_dim", facts.network_dim);
    put(out, "ss_network_alpha", facts.network_alpha);
    put_some(out, "ss_network_dropout", facts.network_dropout);
    if !facts.network_args.is_empty() {
        put(out, "ss_network_args", json!(facts.network_args));
    }
    put_some(out, "ss_base_model_version", facts.family.and_then(|family| family.version_string(facts.v_prediction)));
    put_some(out, "ss_v2", facts.family.map(|family| python_bool(family == Family::Sd2)));
    put(out, "ss_output_name", base_name(&facts.output_name));
    put(out, "ss_sd_model_name", base_name(&facts.base_model));
    put(out, "ss_learning_rate", facts.learning_rate);
    put_some(out, "ss_unet_lr", facts.unet_learning_rate);
    put_some(out, "ss_text_encoder_lr", facts.text_encoder_learning_rate);
    put(out, "ss_optimizer", &facts.optimizer);
    put(out, "ss_lr_scheduler", &facts.lr_scheduler);
    put(out, "ss_lr_warmup_steps", facts.lr_warmup_steps);
    put_some(out, "ss_max_grad_norm", facts.max_grad_norm);
    put(out, "ss_steps", facts.steps);
    put(out, "ss_max_train_steps", facts.max_steps);
    put(out, "ss_epoch", facts.epoch);
    put(out, "ss_num_epochs", facts.num_epochs);
    put(out, "ss_seed", facts.seed);
    put(out, "ss_batch_size_per_device", facts.batch_size);
    put(out, "ss_total_batch_size", facts.batch_size);
    put(out, "ss_gradient_accumulation_steps", facts.gradient_accumulation_steps);
    put(out, "ss_gradient_checkpointing", python_bool(facts.gradient_checkpointing));
    put(out, "ss_mixed_precision", &facts.mixed_precision);
    put_some(out, "ss_caption_dropout_rate", facts.caption_dropout_rate);
    put_some(out, "ss_caption_tag_dropout_rate", facts.caption_tag_dropout_rate);
    put_some(out, "ss_clip_skip", facts.clip_skip);
    put_some(out, "ss_training_started_at", facts.started_at);
    put_some(out, "ss_training_finished_at", facts.finished_at);
    put_some(out, "ss_training_comment", facts.comment.as_ref());
}

fn objective_record(objective: &Objective, out: &mut BTreeMap<String, String>) {
    put(out, "ss_loss_type", &objective.loss_type);
    if let Some(huber) = &objective.huber {
        put(out, "ss_huber_schedule", &huber.schedule);
        put(out, "ss_huber_c", huber.c);
        put(out, "ss_huber_scale", huber.scale);
    }
    put_some(out, "ss_min_snr_gamma", objective.min_snr_gamma);
    put(out, "ss_debiased_estimation", python_bool(objective.debiased_estimation));
    put(out, "ss_prior_loss_weight", objective.prior_loss_weight);
    put_some(out, "ss_noise_offset", objective.noise_offset);
    put_some(out, "ss_adaptive_noise_scale", objective.adaptive_noise_scale);
    put_some(out, "ss_multires_noise_iterations", objective.multires_noise.map(|noise| noise.iterations));
    put_some(out, "ss_multires_noise_discount", objective.multires_noise.map(|noise| noise.discount));
    put_some(out, "ss_ip_noise_gamma", objective.ip_noise_gamma);
    put(out, "ss_zero_terminal_snr", python_bool(objective.zero_terminal_snr));
}

fn dataset_record(facts: &Facts, out: &mut BTreeMap<String, String>) {
    let [width, height] = facts.resolution;
    put(out, "ss_resolution", format!("({width}, {height})"));
    put(out, "ss_num_train_images", facts.num_train_images);
    let mut dirs = serde_json::Map::new();
    for (dir, repeats, images) in &facts.dataset_dirs {
        let name = base_name(dir);
        // two folders can have the same last part
        let twin = (2..).map(|n| format!("{name} ({n})")).find(|twin| !dirs.contains_key(twin));
        let key = if dirs.contains_key(name) { twin } else { None };
        dirs.insert(key.unwrap_or_else(|| name.to_owned()), json!({ "n_repeats": repeats, "img_count": images }));
    }
    if !dirs.is_empty() {
        put(out, "ss_dataset_dirs", json!(dirs));
    }
    if !facts.tag_frequency.is_empty() {
        put(out, "ss_tag_frequency", json!(capped(&facts.tag_frequency)));
    }
}

/// The most frequent tags that fit the limit (ties by name), under the folders' base names.
fn capped(tags: &TagFrequency) -> TagFrequency {
    let mut all: Vec<(&str, &str, u64)> =
        tags.iter().flat_map(|(dir, tags)| tags.iter().map(move |(tag, count)| (base_name(dir), tag.as_str(), *count))).collect();
    all.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
    let mut kept: TagFrequency = TagFrequency::new();
    let mut bytes = 0;
    for (dir, tag, count) in all {
        // as JSON inside a JSON string: each quote is escaped, and any character may become six bytes, twice
        bytes += 2 * serde_json::Value::from(tag).to_string().len() + 24 + if kept.contains_key(dir) { 0 } else { 2 * dir.len() + 16 };
        if bytes > TAG_FREQUENCY_LIMIT_BYTES {
            break;
        }
        *kept.entry(dir.to_owned()).or_default().entry(tag.to_owned()).or_default() += count;
    }
    kept
}

fn model_spec(facts: &Facts, out: &mut BTreeMap<String, String>) {
    let architecture = match (facts.family, facts.v_prediction) {
        (Some(Family::Sd1), _) => Some("stable-diffusion-v1/lora"),
        (Some(Family::Sd2), false) => Some("stable-diffusion-v2-512/lora"),
        (Some(Family::Sd2), true) => Some("stable-diffusion-v2-768-v/lora"),
        _ => None,
    };
    put(out, "modelspec.sai_model_spec", "1.0.1");
    put_some(out, "modelspec.architecture", architecture);
    put(out, "modelspec.implementation", "diffusers");
    put(out, "modelspec.title", base_name(&facts.output_name));
    put_some(out, "modelspec.date", facts.finished_at.map(iso_date));
    let [width, height] = facts.resolution;
    put(out, "modelspec.resolution", format!("{width}x{height}"));
    put(out, "modelspec.prediction_type", if facts.v_prediction { "v" } else { "epsilon" });
    put_some(out, "modelspec.encoder_layer", facts.clip_skip);
    put_some(out, "modelspec.trigger_phrase", facts.trigger_phrase.as_ref());
    put_some(out, "modelspec.description", facts.comment.as_ref());
}

/// The last part of a path of any system, or of `owner/name`; a name without separators is kept whole.
pub fn base_name(path: &str) -> &str {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or("")
}

/// `2026-11-30T12:00:00` (UTC) from seconds since 1970; the civil calendar by Howard Hinnant's `civil_from_days`.
fn iso_date(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.clamp(0.0, 253_402_300_799.0) as i64 } else { 0 };
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", time / 3600, time % 3600 / 60, time % 60)
}

/// Adds `sshs_model_hash` and `sshs_legacy_hash` for the tensors as they will be written. A file without metadata stays so.
///
/// The first is SHA-256 over everything after the header, so it doesn't change with the metadata. The second is the first 8 digits
/// of SHA-256 over the 64 KiB at 1 MiB of the file as it would be with its `ss_*` metadata only.
pub(crate) fn add_hashes(metadata: &mut BTreeMap<String, String>, entries: &[Entry<'_>]) -> Result<()> {
    if metadata.is_empty() {
        return Ok(());
    }
    let order = file_order(entries);
    let mut model = Sha256::new();
    order.iter().for_each(|entry| model.update(&entry.bytes));
    let record: BTreeMap<String, String> =
        metadata.iter().filter(|(key, _)| key.starts_with("ss_")).map(|(k, v)| (k.clone(), v.clone())).collect();
    let header = serialize_header(&order, &record)?;
    let (mut legacy, mut at) = (Sha256::new(), 0usize);
    for chunk in std::iter::once(&header[..]).chain(order.iter().map(|entry| &*entry.bytes)) {
        let begin = 0x10_0000usize.saturating_sub(at).min(chunk.len());
        let end = 0x11_0000usize.saturating_sub(at).min(chunk.len());
        legacy.update(&chunk[begin..end]);
        at += chunk.len();
    }
    metadata.insert("sshs_model_hash".to_owned(), crate::hex(&model.finalize()));
    metadata.insert("sshs_legacy_hash".to_owned(), crate::hex(&legacy.finalize())[..8].to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            family: Some(Family::Sd1),
            output_name: "style.v1.2".to_owned(),
            base_model: "/home/someone/private/sd15.safetensors".to_owned(),
            network_dim: 16,
            network_alpha: 8.0,
            learning_rate: 1e-4,
            resolution: [512, 768],
            dataset_dirs: vec![("C:\\private\\set\\".to_owned(), 2, 28), ("/home/someone/set".to_owned(), 1, 3)],
            finished_at: Some(1_796_040_000.0),
            ..Facts::default()
        }
    }

    #[test]
    fn names_of_the_base_rank_and_alpha_are_strings_that_other_programs_look_for() {
        let out = build(&facts());
        let expected = [
            ("ss_base_model_version", "sd_v1"),
            ("ss_network_dim", "16"),
            ("ss_network_alpha", "8"),
            ("ss_network_module", "networks.lora"),
            ("ss_output_name", "style.v1.2"),
            ("ss_learning_rate", "0.0001"),
            ("ss_resolution", "(512, 768)"),
            ("modelspec.architecture", "stable-diffusion-v1/lora"),
            ("modelspec.sai_model_spec", "1.0.1"),
            ("modelspec.prediction_type", "epsilon"),
            ("modelspec.date", "2026-11-30T12:00:00"),
        ];
        for (key, value) in expected {
            assert_eq!(out.get(key).map(String::as_str), Some(value), "{key}");
        }
        let v = build(&Facts { family: Some(Family::Sd2), v_prediction: true, ..facts() });
        assert_eq!((v["ss_base_model_version"].as_str(), v["ss_v2"].as_str()), ("sd_v2_v", "True"));
    }

    #[test]
    fn the_objective_has_sd_scripts_names_and_says_nothing_of_what_was_off() {
        let out = build(&facts());
        let kin = ["huber", "snr_gamma", "noise_offset", "adaptive", "multires", "ip_noise", "dropout"];
        assert!(out.keys().all(|key| !kin.iter().any(|word| key.contains(word))), "{out:?}");
        assert_eq!((out["ss_zero_terminal_snr"].as_str(), out["ss_debiased_estimation"].as_str()), ("False", "False"));
        let objective = Objective {
            loss_type: "smooth_l1".to_owned(),
            huber: Some(HuberFacts { schedule: "exponential".to_owned(), c: 0.1, scale: 1.0 }),
            min_snr_gamma: Some(5.0),
            debiased_estimation: true,
            prior_loss_weight: 0.5,
            noise_offset: Some(0.05),
            adaptive_noise_scale: Some(-0.01),
            multires_noise: Some(MultiresNoise { iterations: 6, discount: 0.3 }),
            ip_noise_gamma: Some(0.1),
            zero_terminal_snr: true,
        };
        let out = build(&Facts { objective, caption_dropout_rate: Some(0.1), caption_tag_dropout_rate: Some(0.0), ..facts() });
        for (key, value) in [
            ("ss_loss_type", "smooth_l1"),
            ("ss_huber_schedule", "exponential"),
            ("ss_huber_c", "0.1"),
            ("ss_huber_scale", "1"),
            ("ss_min_snr_gamma", "5"),
            ("ss_debiased_estimation", "True"),
            ("ss_prior_loss_weight", "0.5"),
            ("ss_noise_offset", "0.05"),
            ("ss_adaptive_noise_scale", "-0.01"),
            ("ss_multires_noise_iterations", "6"),
            ("ss_multires_noise_discount", "0.3"),
            ("ss_ip_noise_gamma", "0.1"),
            ("ss_zero_terminal_snr", "True"),
            ("ss_caption_dropout_rate", "0.1"),
            ("ss_caption_tag_dropout_rate", "0"),
        ] {
            assert_eq!(out.get(key).map(String::as_str), Some(value), "{key}");
        }
    }

    #[test]
    fn no_local_path_gets_into_a_file() {
        let tags = BTreeMap::from([("/home/someone/private/faces".to_owned(), BTreeMap::from([("cat".to_owned(), 3)]))]);
        let out = build(&Facts { tag_frequency: tags, ..facts() });
        assert_eq!(out["ss_tag_frequency"], r#"{"faces":{"cat":3}}"#);
        assert_eq!(out["ss_sd_model_name"], "sd15.safetensors");
        assert_eq!(out["ss_dataset_dirs"], r#"{"set":{"n_repeats":2,"img_count":28},"set (2)":{"n_repeats":1,"img_count":3}}"#);
        for (key, value) in out {
            assert!(!value.contains("private") && !value.contains("someone"), "{key}: {value}");
        }
    }

    #[test]
    fn tag_statistics_of_a_huge_set_keep_the_most_frequent_tags_under_the_limit() {
        let many: BTreeMap<String, u64> = (0..50_000).map(|n| (format!("tag \"{n}\" \u{1}é"), n)).collect();
        let out = build(&Facts { tag_frequency: BTreeMap::from([("set".to_owned(), many)]), ..facts() });
        let escaped = serde_json::to_string(&out).unwrap();
        assert!(escaped.len() < 900_000, "{} bytes", escaped.len());
        let kept: TagFrequency = serde_json::from_str(&out["ss_tag_frequency"]).unwrap();
        assert!(kept["set"].len() > 1000);
        assert!(kept["set"].values().all(|count| *count >= 50_000 - kept["set"].len() as u64));
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(iso_date(0.0), "1970-01-01T00:00:00");
        assert_eq!(iso_date(951_782_399.0), "2000-02-28T23:59:59");
        assert_eq!(iso_date(951_782_400.0), "2000-02-29T00:00:00");
        assert_eq!(iso_date(f64::NAN), "1970-01-01T00:00:00");
    }

    #[test]
    fn base_names_are_the_last_parts_of_paths() {
        assert_eq!(base_name("owner/model"), "model");
        assert_eq!(base_name("C:\\a\\b\\"), "b");
        assert_eq!(base_name("style.v1.2"), "style.v1.2");
        assert_eq!(base_name("/"), "");
    }
}
