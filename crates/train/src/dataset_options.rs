//! A section `datasets` of the config as the options of a dataset.

use crate::model::Model;
use config::{BadImages, BucketScheme, CaptionConfig, DatasetConfig, MaskConfig};
use data::{
    CaptionOptions, DatasetOptions, FolderNames, Inside, Level, Limits, MaskOptions, MaskSource, MissingCaptions, OnBadImage, Purpose,
    Replacement, Scheme,
};

pub fn dataset_options(dataset: &DatasetConfig, model: &Model) -> DatasetOptions {
    let step = dataset.bucket_step.unwrap_or(model.bucket_step() as u32);
    DatasetOptions {
        folder: dataset.folder_path.clone(),
        recursive: dataset.recursive,
        on_bad_image: if dataset.bad_images == BadImages::Stop { OnBadImage::Stop } else { OnBadImage::Skip },
        missing_captions: match dataset.caption.missing_captions {
            config::MissingCaptions::Fill => MissingCaptions::Fill,
            config::MissingCaptions::Skip => MissingCaptions::Skip,
            config::MissingCaptions::Stop => MissingCaptions::Stop,
        },
        folder_names: match dataset.caption.kohya_folders {
            None => FolderNames::Auto,
            Some(true) => FolderNames::Obey,
            Some(false) => FolderNames::Ignore,
        },
        caption: caption_options(&dataset.caption),
        resolutions: dataset.resolution.iter().map(|r| data::Resolution { width: r.width, height: r.height }).collect(),
        scheme: scheme(dataset),
        step,
        repeats: dataset.num_repeats,
        flip: dataset.flip_x,
        background: dataset.background,
        purpose: match dataset.reg_ratio {
            ratio if ratio > 0.0 => Purpose::Regularise { ratio },
            _ => Purpose::Train { validation: dataset.validation },
        },
        mask: mask_options(&dataset.mask, model.factor() as u32),
    }
}

fn mask_options(mask: &MaskConfig, factor: u32) -> Option<MaskOptions> {
    let source = match &mask.mask_path {
        Some(folder) => MaskSource::Folder(folder.clone()),
        None if mask.alpha_mask => MaskSource::Alpha,
        None => return None,
    };
    Some(MaskOptions {
        source,
        inside: if mask.invert_mask { Inside::Black } else { Inside::White },
        // However little more than nothing it is.
        min_value: (mask.mask_min_value as f32).max(if mask.mask_min_value > 0.0 { f32::MIN_POSITIVE } else { 0.0 }),
        level: if mask.normalize_mask { Level::Mean } else { Level::AsIs },
        factor,
    })
}

fn caption_options(caption: &CaptionConfig) -> CaptionOptions {
    let replacement = |pair: &String| {
        let mut parts = pair.split('|').map(str::to_string);
        Replacement { from: parts.next().unwrap_or_default(), to: parts.collect() }
    };
    CaptionOptions {
        extensions: caption.caption_ext.clone(),
        encoding: caption.caption_encoding.as_deref().and_then(base::code_page::named),
        column: caption.caption_column.clone(),
        default_caption: caption.default_caption.clone(),
        trigger_word: caption.trigger_word.clone(),
        shuffle_tokens: caption.shuffle_tokens,
        keep_tokens: caption.keep_tokens,
        keep_tokens_separator: caption.keep_tokens_separator.clone(),
        separator: caption.caption_separator.clone(),
        token_dropout_rate: caption.token_dropout_rate,
        caption_dropout_rate: caption.caption_dropout_rate,
        wildcards: caption.enable_wildcard,
        prefix: caption.caption_prefix.clone(),
        suffix: caption.caption_suffix.clone(),
        replacements: caption.replacements.iter().map(replacement).collect(),
        random_triggers: caption.random_triggers.clone(),
        random_triggers_max: caption.random_triggers_max,
    }
}

pub fn scheme(dataset: &DatasetConfig) -> Scheme {
    match (dataset.buckets, dataset.bucket_scheme, dataset.bucket_no_upscale) {
        (false, ..) => Scheme::Fixed,
        (true, BucketScheme::Ratio, _) => Scheme::Ratio,
        (true, BucketScheme::List, true) => Scheme::OwnSize,
        (true, BucketScheme::List, false) => Scheme::List(Limits { min: dataset.min_bucket, max: dataset.max_bucket }),
    }
}
