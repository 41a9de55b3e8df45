//! `datasets:` folders of pictures with captions.

use crate::caption::CaptionConfig;
use crate::findings::Findings;
use crate::mask::MaskConfig;
use crate::path;
use crate::scalar::{Flag, Number, Size, Sizes, TextOrFalse, Texts, Whole};
use crate::section::section;
use anyhow::{Context, Result, bail, ensure};
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::path::PathBuf;

section! {
    RawDataset {
        /// A folder of pictures, or a list of them (.jsonl, .json, .csv, .tsv).
        #[serde(alias = "dataset_path", alias = "path", alias = "image_dir")]
        folder_path: String,
        /// Subfolders too?
        recursive: Flag,
        /// Extension of the caption files, with or without the dot; of a list, the first file that exists counts.
        #[serde(alias = "caption_extension")]
        caption_ext: Texts,
        /// Encoding of caption files and lists that are neither UTF-8 nor UTF-16, such as `gbk`, `shift_jis` or `windows-1251`; `auto`: guessed
        /// from all of them together, and asked for where that leaves a doubt.
        caption_encoding: String,
        /// Column of the captions in metadata lists, if it has none of the usual names.
        caption_column: String,
        /// `fill`, `skip` or `stop`: what a picture without a caption does.
        missing_captions: String,
        /// Do folder names such as `10_name` mean repeats and captions? Default: if every picture lies in such a folder.
        kohya_folders: Flag,
        /// Replaces `[trigger]`, and is put in front of captions without it; default: the run's.
        trigger_word: String,
        /// For pictures without a caption file.
        default_caption: TextOrFalse,
        /// Side of the square whose area a picture is fitted to, or a rectangle such as `768x1152`; a list trains each picture at each.
        resolution: Sizes,
        /// How often an epoch shows each picture.
        num_repeats: Whole,
        /// Share of the pictures that is never trained on but measured with (train.validate_every); 1: all of them.
        #[serde(alias = "validation_split")]
        validation: Number,
        /// Are these pictures of what the model should keep drawing as it does? They weigh `train.reg_weight`, and get no trigger word.
        is_reg: Flag,
        /// With `is_reg`: shows so many of them for each picture to learn, beside those in each step; 0: they are part of the epoch like all
        /// others.
        reg_ratio: Number,
        /// How much these pictures count.
        loss_multiplier: Number,
        /// Shows each picture mirrored too.
        #[serde(alias = "flip_aug")]
        flip_x: Flag,
        /// Share of the times in which a picture is shown without its caption (with the trigger word alone, if there is one).
        caption_dropout_rate: Number,
        /// Tags in a new order in each epoch.
        #[serde(alias = "shuffle_caption")]
        shuffle_tokens: Flag,
        /// Number of leading tags that are neither shuffled nor dropped.
        keep_tokens: Whole,
        /// Tags before this text are neither shuffled nor dropped, however many they are.
        keep_tokens_separator: String,
        /// Between tags; default: a comma.
        caption_separator: String,
        /// Share of the tags that are left out, drawn anew in each epoch.
        #[serde(alias = "caption_tag_dropout_rate")]
        token_dropout_rate: Number,
        /// Each line is a caption of its own, and `{a|b}` stands for one of its parts; both are drawn in each epoch.
        enable_wildcard: Flag,
        /// Goes in front of every caption.
        caption_prefix: String,
        /// Goes behind every caption.
        caption_suffix: String,
        /// `from|to`; with several choices (`from|one|other`) one is drawn in each epoch.
        replacements: Texts,
        /// Words of which some are added behind captions.
        random_triggers: Texts,
        /// At most so many of them.
        random_triggers_max: Whole,
        /// Encodes each picture once; false: in each step.
        cache_latents: Flag,
        /// Keeps them in `cache_dir`, for the next run too.
        cache_latents_to_disk: Flag,
        /// As `train.cache_text_embeddings`, which counts for all datasets.
        cache_text_embeddings: Flag,
        /// false: every picture is cropped to the resolution itself.
        #[serde(alias = "enable_bucket")]
        buckets: Flag,
        /// `ratio`: ai-toolkit's buckets, one for nearly every aspect ratio; `list`: sd-scripts' fixed list.
        bucket_scheme: String,
        /// Sides are multiples of this; default: what the model needs.
        #[serde(alias = "bucket_tolerance", alias = "bucket_reso_steps")]
        bucket_step: Whole,
        /// Shortest side of a bucket, with `bucket_scheme: list`.
        #[serde(alias = "min_bucket_reso")]
        min_bucket: Whole,
        /// Longest side of a bucket, with `bucket_scheme: list`.
        #[serde(alias = "max_bucket_reso")]
        max_bucket: Whole,
        /// With `bucket_scheme: list`: a picture keeps its own size, brought down to the area, and is cut to whole steps.
        bucket_no_upscale: Flag,
        /// A folder with a mask for each picture, of the same path and name (whatever the extension): white counts, black doesn't. A picture
        /// without one counts whole.
        mask_path: String,
        /// The pictures' transparency is their mask: what is transparent doesn't count.
        alpha_mask: Flag,
        /// The other way round: black (or transparent) counts.
        invert_mask: Flag,
        /// What the rest counts, between 0 and 1.
        mask_min_value: Number,
        /// Divides the weights of each picture by their mean, so that a small subject counts as much as a large one; false: sd-scripts' way.
        normalize_mask: Flag,
        /// What transparent pictures are laid over: `white`, `black`, or `"#rrggbb"`.
        background: String,
        /// `skip` or `stop`: what a picture that can't be used does.
        bad_images: String,
        /// `image`, and nothing else.
        r#type: String,
    }
    no effect {
        num_workers: Whole => "all datasets share the workers of the section dataloader",
        prefetch_factor: Whole => "all datasets share the workers of the section dataloader",
        cache_latents_num_workers: Whole => "all cores decode",
        load_image_when_caching_latents: Flag => "pictures are decoded when they are encoded",
        replay_transforms: Flag => "every random draw is reproducible",
        num_frames: Whole => "these are pictures",
        shrink_video_to_frames: Flag => "these are pictures",
        fps: Number => "these are pictures",
        auto_frame_count: Flag => "these are pictures",
        do_i2v: Flag => "these are pictures",
        do_audio: Flag => "these are pictures",
        fast_image_size: Flag => "sizes are read from the files' headers",
    }
    not yet {
        batch_size: "", random_scale: false, random_crop: false, scale: 1.0,
        prior_reg: false, network_weight: 1.0, flip_y: false, augments: "", augmentations: "",
        control_path: "", control_path_1: "", control_path_2: "", control_path_3: "", control_from_same_folder: false,
        full_size_control_images: true, inpaint_path: "", unconditional_path: "", cache_tensors_to_disk: false, cache_clip_vision_to_disk: false, standardize_images: false,
        square_crop: false, controls: "",
    }
}

impl RawDataset {
    /// Takes over what the section `dataloader` says of caches where the dataset itself says nothing.
    pub fn with_caches(mut self, [memory, disk]: [Option<Flag>; 2]) -> RawDataset {
        if self.cache_latents.is_none() && self.cache_latents_to_disk.is_none() {
            (self.cache_latents, self.cache_latents_to_disk) = (memory, disk);
        }
        self
    }
}

/// Which sizes pictures are brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BucketScheme {
    Ratio,
    List,
}

/// What happens when a picture of the folder can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BadImages {
    Skip,
    Stop,
}

/// What pictures are fitted to: width and height in pixels. Written as one number if they are equal, else as `768x1152`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resolution {
    pub width: u32,
    pub height: u32,
}

/// A square of this side.
impl PartialEq<u32> for Resolution {
    fn eq(&self, side: &u32) -> bool {
        self.width == *side && self.height == *side
    }
}

impl Serialize for Resolution {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (width, height) = (u64::from(self.width), u64::from(self.height));
        if width == height { Size::Side(width) } else { Size::Sides(width, height) }.serialize(serializer)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetConfig {
    pub folder_path: PathBuf,
    pub recursive: bool,
    #[serde(flatten)]
    pub caption: CaptionConfig,
    pub resolution: Vec<Resolution>,
    pub num_repeats: u32,
    pub validation: f64,
    pub is_reg: bool,
    /// 0: regularisation pictures are part of the epoch like all others.
    pub reg_ratio: f64,
    pub loss_multiplier: f64,
    pub flip_x: bool,
    pub cache_latents: bool,
    pub cache_latents_to_disk: bool,
    pub buckets: bool,
    pub bucket_scheme: BucketScheme,
    /// `None`: what the model needs.
    pub bucket_step: Option<u32>,
    pub min_bucket: Option<u32>,
    pub max_bucket: Option<u32>,
    pub bucket_no_upscale: bool,
    #[serde(flatten)]
    pub mask: MaskConfig,
    /// Red, green, blue.
    #[serde(serialize_with = "colour_code")]
    pub background: [u8; 3],
    pub bad_images: BadImages,
}

pub(crate) fn resolve(raw: RawDataset, index: usize, trigger: Option<&str>, findings: &mut Findings) -> DatasetConfig {
    let section = format!("datasets[{index}]");
    raw.check_foreign(&section, findings);
    let key = |name: &str| format!("{section}.{name}");
    findings.check(kind(&key("type"), raw.r#type.as_deref()));
    let mask = crate::mask::resolve(&raw, &section, findings);
    let is_reg = raw.is_reg.is_some_and(|f| f.0);
    // The trigger word stands for what is learned, which regularisation pictures don't show.
    let caption = crate::caption::resolve(&raw, &section, trigger.filter(|_| !is_reg), findings);
    let validation = findings.or(rate(&key("validation"), raw.validation), 0.0);
    let folder = raw.folder_path.as_deref().with_context(|| format!("{} is missing: the folder of the pictures", key("folder_path")));
    let (cache_latents, cache_latents_to_disk) =
        findings.or(latent_cache(raw.cache_latents, raw.cache_latents_to_disk, &section), (true, true));
    let mut side_of = |name: &str, value: Option<Whole>| findings.or(value.map(|v| side(&key(name), v.0)).transpose(), None);
    let (bucket_step, min_bucket) = (side_of("bucket_step", raw.bucket_step), side_of("min_bucket", raw.min_bucket));
    let max_bucket = side_of("max_bucket", raw.max_bucket);
    let config = DatasetConfig {
        folder_path: findings.or(folder.and_then(|folder| path::read(&key("folder_path"), folder)), PathBuf::new()),
        recursive: raw.recursive.is_none_or(|f| f.0),
        caption,
        resolution: findings.or(resolutions(&key("resolution"), raw.resolution), Vec::new()),
        num_repeats: findings.or(repeats(&key("num_repeats"), raw.num_repeats), 1),
        validation,
        is_reg,
        reg_ratio: findings.or(reg_ratio(&section, raw.reg_ratio, is_reg, validation), 0.0),
        loss_multiplier: findings.or(crate::train::not_negative(&key("loss_multiplier"), raw.loss_multiplier, 1.0), 1.0),
        flip_x: raw.flip_x.is_some_and(|f| f.0),
        cache_latents,
        cache_latents_to_disk,
        buckets: raw.buckets.is_none_or(|f| f.0),
        bucket_scheme: findings.or(scheme(&key("bucket_scheme"), raw.bucket_scheme.as_deref()), BucketScheme::Ratio),
        bucket_step,
        min_bucket,
        max_bucket,
        bucket_no_upscale: raw.bucket_no_upscale.is_some_and(|f| f.0),
        mask,
        background: findings.or(colour(&key("background"), raw.background.as_deref().unwrap_or("white")), [255; 3]),
        bad_images: findings.or(bad_images(&key("bad_images"), raw.bad_images.as_deref()), BadImages::Skip),
    };
    config.check_buckets(&section, findings);
    config
}

impl DatasetConfig {
    fn check_buckets(&self, section: &str, findings: &mut Findings) {
        let key = |name: &str| format!("{section}.{name}");
        let (is_ratio, limited) = (self.bucket_scheme == BucketScheme::Ratio, self.min_bucket.or(self.max_bucket).is_some());
        if let Some((min, max)) = self.min_bucket.zip(self.max_bucket).filter(|(min, max)| min > max) {
            findings.wrong(format!("{} ({min}) is more than {} ({max})", key("min_bucket"), key("max_bucket")));
        }
        // With these a bucket of the resolution's own shape could not exist.
        let judged = if is_ratio || self.bucket_no_upscale || !self.buckets { &[][..] } else { &self.resolution };
        for Resolution { width, height } in judged.iter().copied() {
            let resolution = format!("{} ({width}x{height})", key("resolution"));
            if let Some(max) = self.max_bucket.filter(|max| *max < width.max(height)) {
                findings.wrong(format!(
                    "{} ({max}) is less than the longest side of {resolution}; raise it, or leave it out",
                    key("max_bucket")
                ));
            }
            if let Some(min) = self.min_bucket.filter(|min| *min > width.min(height)) {
                findings.wrong(format!(
                    "{} ({min}) is more than the shortest side of {resolution}; lower it, or leave it out",
                    key("min_bucket")
                ));
            }
        }
        if is_ratio && limited {
            findings.notice(format!("{} and max_bucket have no effect with bucket_scheme: ratio; `list` has limits", key("min_bucket")));
        }
        if self.bucket_no_upscale && is_ratio {
            findings
                .notice(format!("{} has no effect with bucket_scheme: ratio, which never enlarges a picture", key("bucket_no_upscale")));
        } else if self.bucket_no_upscale && limited {
            findings.notice(format!("{} and max_bucket have no effect with bucket_no_upscale: true", key("min_bucket")));
        }
    }
}

fn kind(key: &str, kind: Option<&str>) -> Result<()> {
    match kind {
        None | Some("image") => Ok(()),
        Some(kind) => bail!("{key}: {kind} is not supported; only `image` is"),
    }
}

fn bad_images(key: &str, name: Option<&str>) -> Result<BadImages> {
    match name.unwrap_or("skip") {
        "skip" => Ok(BadImages::Skip),
        "stop" => Ok(BadImages::Stop),
        other => bail!("{key}: {other} is unknown; it is skip or stop"),
    }
}

/// Both caches are on unless switched off; one on disk includes the one that is asked for in memory.
fn latent_cache(memory: Option<Flag>, disk: Option<Flag>, section: &str) -> Result<(bool, bool)> {
    match (memory.map(|f| f.0), disk.map(|f| f.0)) {
        (Some(false), Some(true)) => {
            bail!("{section}.cache_latents: false contradicts {section}.cache_latents_to_disk: true; remove one")
        }
        (Some(false), _) => Ok((false, false)),
        (_, disk) => Ok((true, disk.unwrap_or(true))),
    }
}

/// `white`, `black` or `#rrggbb`.
fn colour(key: &str, name: &str) -> Result<[u8; 3]> {
    let wrong = || format!("{key}: {name} is no colour; write white, black, or a code such as \"#ffffff\" (in quotes)");
    let digits = match name.trim() {
        "white" => return Ok([255; 3]),
        "black" => return Ok([0; 3]),
        code => code.strip_prefix('#').filter(|d| d.len() == 6 && d.bytes().all(|b| b.is_ascii_hexdigit())).with_context(wrong)?,
    };
    let value = u32::from_str_radix(digits, 16).with_context(wrong)?;
    Ok([(value >> 16) as u8, (value >> 8) as u8, value as u8])
}

fn colour_code<S: Serializer>([r, g, b]: &[u8; 3], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("#{r:02x}{g:02x}{b:02x}"))
}

fn resolutions(key: &str, sizes: Option<Sizes>) -> Result<Vec<Resolution>> {
    let sizes = sizes.map_or(vec![Size::Side(512)], |s| s.0);
    ensure!(!sizes.is_empty(), "{key} is an empty list");
    let (mut resolutions, mut seen) = (Vec::new(), HashSet::new());
    for size in sizes {
        let (width, height) = match size {
            Size::Side(side) => (side, side),
            Size::Sides(width, height) => (width, height),
        };
        let resolution = Resolution { width: side(key, width)?, height: side(key, height)? };
        ensure!(seen.insert(resolution), "{key}: {width}x{height} is given twice; use num_repeats to weigh a resolution");
        resolutions.push(resolution);
    }
    Ok(resolutions)
}

fn side(key: &str, pixels: u64) -> Result<u32> {
    ensure!((8..=16384).contains(&pixels), "{key}: {pixels} pixels is not between 8 and 16384");
    Ok(pixels as u32)
}

fn repeats(key: &str, repeats: Option<Whole>) -> Result<u32> {
    let repeats = repeats.map_or(1, |r| r.0);
    ensure!((1..=100_000).contains(&repeats), "{key}: {repeats} is not between 1 and 100000");
    Ok(repeats as u32)
}

/// Regularisation pictures for each picture to learn.
fn reg_ratio(section: &str, ratio: Option<Number>, is_reg: bool, validation: f64) -> Result<f64> {
    let ratio = ratio.map_or(0.0, |r| r.0);
    ensure!((0.0..=100.0).contains(&ratio), "{section}.reg_ratio: {ratio} is not between 0 and 100");
    ensure!(ratio == 0.0 || is_reg, "{section}.reg_ratio: {ratio} is for regularisation pictures; add is_reg: true, or remove it");
    ensure!(
        ratio == 0.0 || validation == 0.0,
        "{section}.validation ({validation}) and {section}.reg_ratio ({ratio}) exclude each other: regularisation pictures are not set aside"
    );
    Ok(ratio)
}

/// A share between 0 and 1.
pub(crate) fn rate(key: &str, rate: Option<Number>) -> Result<f64> {
    let rate = rate.map_or(0.0, |r| r.0);
    ensure!((0.0..=1.0).contains(&rate), "{key}: {rate} is not a share between 0 and 1");
    Ok(rate)
}

fn scheme(key: &str, name: Option<&str>) -> Result<BucketScheme> {
    match name.unwrap_or("ratio") {
        "ratio" | "ai-toolkit" => Ok(BucketScheme::Ratio),
        "list" | "sd-scripts" => Ok(BucketScheme::List),
        other => bail!("{key}: {other} is unknown; it is ratio or list"),
    }
}
