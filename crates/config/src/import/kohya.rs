//! What sd-scripts' flags mean together: its defaults, which differ from velatura's, and what takes more than one flag to say.
//!
//! Source: sd-scripts' `train_network.py`, `library/train_util.py` and their documentation.

use super::flags::{NETWORK_ARGS, RUN};
use super::literal;
use super::native::Native;
use super::settings::Settings;
use serde_json::{Map, Value};

/// Everything but the pictures. `network` holds what `--network_args` says.
pub(super) fn import(native: &mut Native, run: &Settings, network: &Settings) {
    native.take(RUN, run);
    output(native, run);
    model(native, run);
    adapter(native, run, network);
    length(native, run);
    optimizer(native, run);
    schedule(native, run);
    trained_parts(native, run);
    precision(native, run);
}

fn model(native: &mut Native, run: &Settings) {
    if run.is_on("v2") {
        native.set("model.arch", "sd2");
        native.set("model.prediction_type", if run.is_on("v_parameterization") { "v_prediction" } else { "epsilon" });
    } else if run.is_on("v_parameterization") {
        native.set("model.prediction_type", "v_prediction");
    }
}

fn output(native: &mut Native, run: &Settings) {
    let name = run.text("output_name");
    if name.is_none() {
        native.note("--output_name is not given: the run is called `last`, as in sd-scripts");
    }
    native.set("name", name.unwrap_or("last"));
    if let Some(format) = run.text("save_model_as").filter(|format| *format != "safetensors") {
        native.note(format!("--save_model_as {format} has no effect here: files are safetensors"));
    }
    native.set("save.dtype", run.text("save_precision").unwrap_or("float"));
    let steps = run.whole("save_every_n_steps").filter(|n| *n > 0);
    let epochs = run.whole("save_every_n_epochs").filter(|n| *n > 0);
    match epochs {
        Some(epochs) => native.set("save.save_every_epochs", epochs),
        None => native.set("save.save_every", steps.unwrap_or(0)),
    }
    if let (Some(steps), Some(_)) = (steps, epochs) {
        native.error(format!("--save_every_n_steps ({steps}) and --save_every_n_epochs are both given; keep one"));
    }
    keep(native, run, [steps, epochs]);
}

/// How many checkpoints stay: sd-scripts says it as a number of steps or epochs, and without one keeps all.
fn keep(native: &mut Native, run: &Settings, [steps, epochs]: [Option<u64>; 2]) {
    let kept = |last: &str, every: Option<u64>| Some(run.whole(last).filter(|n| *n > 0)?.div_ceil(every?));
    let number = kept("save_last_n_steps", steps).or(kept("save_last_n_epochs", epochs));
    if steps.is_some() || epochs.is_some() {
        native.set("save.max_step_saves_to_keep", number.unwrap_or(1000).max(1));
    }
}

fn adapter(native: &mut Native, run: &Settings, network: &Settings) {
    let module = run.text("network_module").unwrap_or("networks.lora");
    // LyCORIS gives convolutions the rank and alpha of the rest where nothing else is said.
    let is_lycoris = module == "lycoris.kohya";
    let (rank, alpha) = (run.whole("network_dim").unwrap_or(4), run.number("network_alpha").unwrap_or(1.0));
    let conv = network.whole("conv_dim").or(is_lycoris.then_some(rank)).filter(|rank| *rank > 0);
    let kind = match (module, network.text("algo")) {
        ("networks.lora", _) | ("lycoris.kohya", None | Some("lora" | "locon")) => {
            if conv.is_some() {
                "locon"
            } else {
                "lora"
            }
        }
        // What is not supported yet is refused by the config's own check.
        ("lycoris.kohya", Some(algo)) => algo,
        (other, _) => {
            native.error(format!("--network_module {other}: only networks.lora and lycoris.kohya (lora, locon) can be taken over"));
            "lora"
        }
    };
    native.set("network.type", kind);
    native.set("network.linear", rank);
    native.set("network.linear_alpha", alpha);
    if let Some(rank) = conv {
        native.set("network.conv", rank);
        native.set("network.conv_alpha", network.number("conv_alpha").unwrap_or(if is_lycoris { alpha } else { 1.0 }));
    } else if network.get("conv_alpha").is_some() {
        native.note("--network_args conv_alpha has no effect without conv_dim");
    }
    if network.text("preset") == Some("full") {
        native.note("--network_args preset=full has no effect here: it names what is done without it");
    }
    native.take(NETWORK_ARGS, network);
}

fn length(native: &mut Native, run: &Settings) {
    match (run.whole("max_train_epochs").filter(|n| *n > 0), run.whole("max_train_steps")) {
        (Some(epochs), steps) => {
            native.set("train.epochs", epochs);
            if let Some(steps) = steps {
                native.note(format!("--max_train_steps ({steps}) has no effect beside --max_train_epochs, as in sd-scripts"));
            }
        }
        (None, Some(steps)) => native.set("train.steps", steps),
        (None, None) => native.set("train.steps", 1600),
    }
    // sd-scripts counts up to and without the last; here the last is one that is trained.
    if let Some(end) = run.whole("max_timestep") {
        native.set("train.max_timestep", end.clamp(1, 1000) - 1);
    }
    native.set("train.gradient_checkpointing", run.is_on("gradient_checkpointing"));
    if run.get("seed").is_none() {
        native.note("--seed is not given: sd-scripts then draws one for each run, here it is 42");
    }
    native.set("seed", run.whole("seed").unwrap_or(42));
    let tokens = run.whole("max_token_length").filter(|n| *n > 0).unwrap_or(75);
    native.set("train.max_token_length", tokens);
}

fn optimizer(native: &mut Native, run: &Settings) {
    let name = optimizer_name(native, run);
    let mut params = match literal::map(&run.texts("optimizer_args")) {
        Ok(params) => params,
        Err(error) => return native.error(format!("--optimizer_args: {error}")),
    };
    let relative = name.eq_ignore_ascii_case("adafactor") && adafactor(&mut params);
    native.set("train.optimizer", name);
    if !params.is_empty() {
        native.set("train.optimizer_params", params);
    }
    for key in ["learning_rate", "unet_lr"] {
        match run.get(key) {
            Some(setting) if relative => native.note(format!("{} has no effect here: relative_step sets the rate", setting.origin)),
            Some(setting) => native.set(if key == "unet_lr" { "train.unet_lr" } else { "train.lr" }, setting.value.clone()),
            None if key == "learning_rate" && !relative => native.set("train.lr", 2e-6),
            None => {}
        }
    }
}

fn optimizer_name(native: &mut Native, run: &Settings) -> String {
    let given = run.text("optimizer_type");
    let retired = [("use_8bit_adam", "AdamW8bit"), ("use_lion_optimizer", "Lion")];
    let old = retired.into_iter().find(|(flag, _)| run.is_on(flag));
    match (old, given) {
        (Some((flag, name)), Some(given)) if !given.eq_ignore_ascii_case(name) => {
            native.error(format!("--{flag} and --optimizer_type {given} contradict each other; keep --optimizer_type"));
            given.to_string()
        }
        (Some((flag, name)), _) => {
            native.note(format!("--{flag} is read as --optimizer_type {name}"));
            name.to_string()
        }
        (None, given) => given.unwrap_or("AdamW").to_string(),
    }
}

/// The settings that sd-scripts gives Adafactor where the user says nothing; whether it sets the rate by itself.
fn adafactor(params: &mut Map<String, Value>) -> bool {
    params.entry("relative_step").or_insert(Value::Bool(true));
    params.entry("scale_parameter").or_insert(Value::Bool(true));
    params.get("relative_step") == Some(&Value::Bool(true))
}

fn schedule(native: &mut Native, run: &Settings) {
    let given = run.text("lr_scheduler").unwrap_or("constant");
    // With relative_step sd-scripts puts its own in place: a rate that the schedule leaves alone.
    let name = if given.starts_with("adafactor") { "constant" } else { given };
    native.set("train.lr_scheduler", name);
    if let Some(steps) = run.number("lr_warmup_steps").filter(|steps| *steps > 0.0) {
        native.set("train.lr_warmup_steps", number(steps));
    }
    let mut params = match literal::map(&run.texts("lr_scheduler_args")) {
        Ok(params) => params,
        Err(error) => return native.error(format!("--lr_scheduler_args: {error}")),
    };
    let own = [
        ("lr_scheduler_num_cycles", "cosine_with_restarts", "num_cycles", 1.0),
        ("lr_scheduler_power", "polynomial", "power", 1.0),
        ("lr_decay_steps", "warmup_stable_decay", "decay_steps", 0.0),
        ("lr_scheduler_timescale", "inverse_sqrt", "timescale", 0.0),
        ("lr_scheduler_min_lr_ratio", "cosine_with_min_lr", "min_lr_ratio", 0.0),
    ];
    for (flag, schedule, key, default) in own {
        let Some(value) = run.number(flag) else { continue };
        if name == schedule || key == "min_lr_ratio" && name == "warmup_stable_decay" {
            params.insert(key.to_string(), number(value));
        } else if value != default {
            native.note(format!("--{flag} has no effect with --lr_scheduler {name}"));
        }
    }
    if !params.is_empty() {
        native.set("train.lr_scheduler_params", params);
    }
}

/// A number that is whole is written so.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}

/// sd-scripts trains the text encoder unless it is told not to.
fn trained_parts(native: &mut Native, run: &Settings) {
    let (unet_only, text_only) = (run.is_on("network_train_unet_only"), run.is_on("network_train_text_encoder_only"));
    if unet_only && text_only {
        native.error("--network_train_unet_only and --network_train_text_encoder_only exclude each other; keep one");
    }
    let cached = run.is_on("cache_text_encoder_outputs") || run.is_on("cache_text_encoder_outputs_to_disk");
    let rates = run.texts("text_encoder_lr");
    let parsed: Vec<Option<f64>> = rates.iter().map(|rate| rate.trim().parse().ok()).collect();
    if parsed.iter().any(Option::is_none) || parsed.windows(2).any(|pair| pair[0] != pair[1]) {
        native.error(format!("--text_encoder_lr {}: one number is needed, because the model has one text encoder", rates.join(" ")));
    }
    let rate = parsed.first().copied().flatten();
    let zero = rate == Some(0.0);
    if zero && !unet_only {
        native.note("--text_encoder_lr 0 is read as a text encoder that is not trained");
    }
    let text_encoder = !unet_only && !cached && !zero;
    native.set("train.train_unet", !text_only);
    native.set("train.train_text_encoder", text_encoder);
    if let Some(rate) = rate.filter(|_| text_encoder) {
        native.set("train.text_encoder_lr", rate);
    }
    if cached {
        native.set("train.cache_text_embeddings", true);
    }
}

fn precision(native: &mut Native, run: &Settings) {
    match run.text("mixed_precision").unwrap_or("no") {
        "no" => native.set("train.dtype", "fp32"),
        name @ ("bf16" | "fp16") => native.set("train.dtype", name),
        other => native.error(format!("--mixed_precision {other} is unknown; it is no, fp16 or bf16")),
    }
}
