//! sd-scripts' folders of pictures, from `--train_data_dir` or from a dataset file, as entries of `datasets`.

use super::flags::{FILE, PICTURES};
use super::native::Native;
use super::settings::Settings;
use serde_json::{Map, Value};

/// One folder of pictures, with everything that is said of it.
pub(super) struct Subset {
    /// `a.toml: datasets[0].subsets[1]`, for messages.
    pub origin: String,
    pub settings: Settings,
}

/// The settings, and the entries of `datasets` that they come to.
pub(super) fn import(native: &mut Native, run: &Settings, pictures: &Settings, subsets: &[Subset]) {
    let mut entries = Vec::new();
    if subsets.is_empty() {
        entries.extend(folders(native, run, pictures));
    } else {
        for key in ["train_data_dir", "reg_data_dir"] {
            if let Some(setting) = run.get(key).filter(|_| run.text(key).is_some()) {
                native.note(format!("{} has no effect beside a dataset file, as in sd-scripts", setting.origin));
            }
        }
        entries.extend(subsets.iter().map(|subset| of_file(native, run, pictures, subset)));
    }
    if run.is_on("masked_loss") && !entries.iter().any(is_masked) {
        native.note("--masked_loss has no effect without alpha_mask or conditioning_data_dir, as in sd-scripts");
    }
    batch_size(native, run, subsets);
    if entries.is_empty() {
        native.error(
            "no pictures: --train_data_dir is not given, nor is a dataset file; name it beside this one (velatura config import train.toml \
             dataset.toml)",
        );
    }
    native.set("datasets", entries);
}

fn is_masked(entry: &Value) -> bool {
    ["alpha_mask", "mask_path"].iter().any(|key| entry.get(key).is_some())
}

/// The folders of folders that flags name.
fn folders(native: &mut Native, run: &Settings, pictures: &Settings) -> Vec<Value> {
    let mut entries = Vec::new();
    if let Some(repeats) = pictures.get("dataset_repeats") {
        native.note(format!("{} has no effect here: the names of the folders say the repeats, as in sd-scripts", repeats.origin));
    }
    for (key, is_reg) in [("train_data_dir", false), ("reg_data_dir", true)] {
        let Some(folder) = run.text(key) else { continue };
        let mut entry = Map::new();
        entry.insert("folder_path".to_string(), folder.into());
        entry.insert("kohya_folders".to_string(), true.into());
        common(native, &mut entry, pictures);
        mask(native, &mut entry, run, pictures);
        if is_reg {
            regularise(native, &mut entry, run, pictures);
        }
        entries.push(Value::Object(entry));
    }
    entries
}

/// One subset of a dataset file; what it doesn't say, the dataset, `[general]`, and the flags say for it.
fn of_file(native: &mut Native, run: &Settings, pictures: &Settings, subset: &Subset) -> Value {
    let settings = subset.settings.over(pictures);
    let mut entry = Map::new();
    if settings.text("image_dir").is_none() && settings.text("metadata_file").is_none() {
        native.error(format!("{}: image_dir is missing", subset.origin));
    }
    native.take_into(&mut entry, FILE, &settings);
    if let Some(repeats) = settings.whole("dataset_repeats") {
        entry.entry("num_repeats").or_insert(repeats.into());
    }
    // Repeats are said in the file, and only the folder itself is read.
    entry.insert("kohya_folders".to_string(), false.into());
    entry.insert("recursive".to_string(), false.into());
    common(native, &mut entry, &settings);
    mask(native, &mut entry, run, &settings);
    if settings.is_on("is_reg") {
        regularise(native, &mut entry, run, &settings);
    }
    Value::Object(entry)
}

fn common(native: &mut Native, entry: &mut Map<String, Value>, settings: &Settings) {
    native.take_into(entry, PICTURES, settings);
    let extension = settings.text("caption_extension").or(settings.text("caption_extention")).unwrap_or(".caption");
    entry.insert("caption_ext".to_string(), extension.trim_start_matches('.').into());
    // Not asked for, they are left to velatura: the result is the same.
    if settings.is_on("cache_latents_to_disk") {
        entry.insert("cache_latents_to_disk".to_string(), true.into());
    } else if settings.is_on("cache_latents") {
        entry.insert("cache_latents".to_string(), true.into());
    }
    resolution(native, entry, settings);
    buckets(native, entry, settings);
}

fn resolution(native: &mut Native, entry: &mut Map<String, Value>, settings: &Settings) {
    match sides(settings) {
        Some((width, height)) if width == height => drop(entry.insert("resolution".to_string(), width.into())),
        Some((width, height)) => drop(entry.insert("resolution".to_string(), format!("{width}x{height}").into())),
        None => native.error("resolution is not given: add --resolution 512 (or the size that you train at)"),
    }
}

/// Width and height of `resolution`, which may be one side or both.
fn sides(settings: &Settings) -> Option<(u64, u64)> {
    let setting = settings.get("resolution")?;
    let sides: Vec<u64> = setting.value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    Some((sides.first().copied().unwrap_or(512), sides.last().copied().unwrap_or(512)))
}

fn buckets(native: &mut Native, entry: &mut Map<String, Value>, settings: &Settings) {
    let on = settings.is_on("enable_bucket");
    entry.insert("buckets".to_string(), on.into());
    if !on {
        return;
    }
    entry.insert("bucket_scheme".to_string(), "list".into());
    if settings.is_on("bucket_no_upscale") {
        entry.insert("bucket_no_upscale".to_string(), true.into());
        for limit in ["min_bucket_reso", "max_bucket_reso"] {
            if let Some(setting) = settings.get(limit) {
                native.note(format!("{} has no effect with bucket_no_upscale", setting.origin));
            }
        }
    } else {
        entry.insert("min_bucket".to_string(), settings.whole("min_bucket_reso").unwrap_or(256).into());
        let side = sides(settings).map_or(512, |(width, height)| width.max(height));
        let most = settings.whole("max_bucket_reso").unwrap_or(1024).max(side);
        entry.insert("max_bucket".to_string(), most.into());
    }
    entry.insert("bucket_step".to_string(), settings.whole("bucket_reso_steps").unwrap_or(64).into());
}

/// What weighs the parts of the pictures: masks of a folder before transparency, as in sd-scripts, whose weights stay as they are.
fn mask(native: &mut Native, entry: &mut Map<String, Value>, run: &Settings, settings: &Settings) {
    let folder = settings.get("conditioning_data_dir").filter(|_| settings.text("conditioning_data_dir").is_some());
    // A dataset file alone doesn't say what its masks are for.
    let by_folder = run.is_on("masked_loss") || run.is_empty();
    match folder {
        Some(folder) if by_folder => {
            entry.insert("mask_path".to_string(), folder.value.clone());
            if settings.is_on("alpha_mask") {
                native.note(format!("alpha_mask has no effect beside {}, as in sd-scripts", folder.origin));
            }
        }
        _ if settings.is_on("alpha_mask") => drop(entry.insert("alpha_mask".to_string(), true.into())),
        Some(folder) => return native.note(format!("{} has no effect without --masked_loss", folder.origin)),
        None => return,
    }
    entry.insert("normalize_mask".to_string(), false.into());
}

/// A set that keeps what the model knows of the class: sd-scripts draws as many of its pictures as there are to learn, and sets none aside.
fn regularise(native: &mut Native, entry: &mut Map<String, Value>, run: &Settings, settings: &Settings) {
    entry.insert("is_reg".to_string(), true.into());
    entry.insert("reg_ratio".to_string(), 1.into());
    entry.remove("validation");
    let length = if run.whole("max_train_epochs").is_some_and(|epochs| epochs > 0) {
        "an epoch here shows every picture to learn as often as there, in half as many steps"
    } else {
        "the same number of steps shows every picture twice as often, so half of --max_train_steps may do"
    };
    native.note(format!(
        "regularisation pictures come beside those to learn in each step, as many of them (reg_ratio: 1), not in steps of their own as in \
         sd-scripts: {length}"
    ));
    if let Some(weight) = settings.number("prior_loss_weight").filter(|weight| *weight != 1.0) {
        native.set("train.reg_weight", weight);
    }
}

/// One number for the run; datasets that ask for different ones can't have them.
fn batch_size(native: &mut Native, run: &Settings, subsets: &[Subset]) {
    let of_files: Vec<(u64, &str)> =
        subsets.iter().filter_map(|s| Some((s.settings.whole("batch_size")?, s.settings.get("batch_size")?.origin.as_str()))).collect();
    let (first, rest) = match of_files.split_first() {
        Some((first, rest)) => (first.0, rest),
        None => (run.whole("train_batch_size").unwrap_or(1), of_files.as_slice()),
    };
    if let Some((other, origin)) = rest.iter().find(|(size, _)| *size != first) {
        native.error(format!("{origin} ({other}): another dataset asks for {first}, and a run has one batch size; make them equal"));
    }
    native.set("train.batch_size", first);
}
