//! What is trained, and how.

use super::*;

#[test]
fn quantized_weights_have_the_names_of_ai_toolkit() {
    let kept = |model: &str| {
        let loaded = read(&MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, {model}}}")));
        let config = loaded.config.to_json().unwrap();
        let keys = ["quantize", "qtype", "quantize_te", "qtype_te"].map(|key| config["model"][key].to_string().replace('"', ""));
        (keys.join(" "), loaded.notices.join("; "))
    };
    assert_eq!(kept("quantize: true, qtype: int8"), ("true qint8 true qint8".into(), String::new()));
    assert_eq!(kept("quantize: true, qtype: nf4, quantize_te: false"), ("true nf4 false nf4".into(), String::new()));
    assert_eq!(kept("quantize: true, qtype: qint8, qtype_te: NF4"), ("true qint8 true nf4".into(), String::new()));
    assert_eq!(kept("quantize_te: true, qtype_te: nf4").0, "false qint8 true nf4");
    // A type that is not used is not looked at.
    assert_eq!(kept("quantize: false, qtype: qfloat8"), ("false qint8 false qint8".into(), String::new()));
    let (keys, notices) = kept("quantize: true");
    assert_eq!(keys, "true qint8 true qint8");
    assert_says(&notices, &["model.qtype is not given", "qint8"]);
    let (keys, notices) = kept("quantize: true, qtype: qint4");
    assert_eq!(keys, "true nf4 true nf4");
    assert_says(&notices, &["model.qtype: qint4 is kept as nf4"]);
    for (name, part) in [("qfloat8", "nearer"), ("float8", "nearer"), ("qint2", "8 bits"), ("uint3|a/b", "accuracy-recovery")] {
        let text = MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, quantize: true, qtype: \"{name}\"}}"));
        assert_says(&refused(&text), &["model.qtype", name, "qint8", "nf4", part]);
    }
}

#[test]
fn a_weight_decay_that_would_turn_weights_around_is_refused() {
    for text in ["optimizer_params: {weight_decay: 1e6}", "optimizer: lion, optimizer_params: {weight_decay: 11}"] {
        assert_says(&refused_with(&format!("train: {{{text}}}")), &["weight_decay", "from 0 to 10"]);
    }
    assert_says(
        &refused_with("train: {param_groups: [{contains: a, weight_decay: 1e6}]}"),
        &["train.param_groups[0].weight_decay", "from 0 to 10"],
    );
    with("train: {optimizer_params: {weight_decay: 10}, param_groups: [{contains: a, weight_decay: 0}]}");
}

#[test]
fn a_type_of_quantized_weights_that_nobody_switches_on_is_noticed() {
    let notices = |model: &str| read(&MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, {model}}}"))).notices;
    assert_eq!(notices("qtype: nf4"), ["model.qtype: nf4 has no effect without model.quantize: true"]);
    assert_eq!(notices("qtype_te: qint8"), ["model.qtype_te: qint8 has no effect without model.quantize_te: true"]);
    for files_of_ai_toolkit in ["quantize: false, qtype: qfloat8, qtype_te: qfloat8", "quantize: false, quantize_te: false, qtype_te: nf4"]
    {
        assert!(notices(files_of_ai_toolkit).is_empty());
    }
}

#[test]
fn losses_noise_and_timesteps_have_the_names_and_defaults_of_their_peers() {
    let train = |keys: &str| with(&format!("train: {{{keys}}}")).train;
    for (name, kind) in [("l2", LossType::Mse), ("MAE", LossType::Mae), ("huber", LossType::Huber), ("smooth_l1", LossType::SmoothL1)] {
        let loss = train(&format!("loss_type: {name}")).loss;
        assert_eq!((loss.loss_type, loss.huber_schedule, loss.huber_c), (kind, HuberSchedule::Snr, 0.1));
    }
    let pseudo = train("loss_type: pseudo_huber").loss;
    assert_eq!((pseudo.huber_schedule, pseudo.huber_c), (HuberSchedule::Constant, 0.01));
    assert_eq!(train("prior_loss_weight: 0.5").loss.reg_weight, 0.5);
    assert_eq!(train("input_perturbation: 0.1").noise.ip_noise_gamma, 0.1);
    assert_eq!(train("noise_offset: 0.05, adaptive_noise_scale: -0.01").noise.adaptive_noise_scale, -0.01);
    assert!(train("scale_v_pred_loss_like_noise_pred: true").loss.scale_v_pred_loss_like_noise_pred);
    assert_eq!(train("multires_noise_iterations: 6").noise.multires_noise_discount, 0.3);
    assert_eq!(train("timestep_sampling: sigmoid, sigmoid_scale: 0.7").noise.logit_std, 0.7);
    assert_eq!(train("content_or_style: style").noise.content_or_style_reg, ContentOrStyle::Style);
    for (keys, parts) in [
        ("loss_type: wavelet", ["train.loss_type", "smooth_l1"]),
        ("huber_c: 0", ["train.huber_c", "more than 0"]),
        ("loss_type: huber, huber_c: 2", ["train.huber_c", "constant"]),
        ("timestep_type: flux_shift", ["train.timestep_type", "flow-matching"]),
        ("timestep_type: weighted", ["train.timestep_type", "linear_timesteps"]),
        ("multires_noise_iterations: 50", ["train.multires_noise_iterations", "20"]),
        ("logit_std: 0", ["train.logit_std", "min_timestep"]),
        ("adaptive_noise_scale: 0.01", ["train.adaptive_noise_scale", "train.noise_offset"]),
        ("content_or_style: both", ["train.content_or_style", "balanced"]),
    ] {
        assert_says(&refused_with(&format!("train: {{{keys}}}")), &parts);
    }
    assert_says(&refused_with("logging: {log_with: paper}"), &["logging.log_with", "tensorboard"]);
    assert!(with("logging: {log_with: tensorboard}").logging.tensorboard && !with("logging: {log_with: wandb}").logging.tensorboard);
}

#[test]
fn fp16_has_pytorchs_scale_of_the_loss_and_other_types_have_none() {
    let scaler = |train: &str| with(&format!("train: {{{train}}}")).train.loss_scaling();
    let default = scaler("dtype: float16").unwrap();
    assert_eq!((default.init_scale, default.growth_factor, default.backoff_factor), (65536.0, 2.0, 0.5));
    assert_eq!((default.growth_interval, default.min_scale), (2000, 1.0));
    let other = scaler("dtype: fp16, grad_scaler: {init_scale: 1024, growth_interval: 100, enabled: true}").unwrap();
    assert_eq!((other.init_scale, other.growth_interval, other.growth_factor), (1024.0, 100, 2.0));
    let loaded = read(&format!("{MINIMAL}train: {{dtype: bf16, grad_scaler: {{init_scale: 8}}}}\n"));
    assert_eq!(loaded.config.train.loss_scaling(), None);
    assert!(loaded.notices.iter().any(|n| n.contains("train.grad_scaler has no effect")), "{:?}", loaded.notices);
    for (keys, parts) in [
        ("init_scale: 0", ["train.grad_scaler.init_scale", "0"]),
        ("growth_factor: 0.5", ["train.grad_scaler.growth_factor", "0.5"]),
        ("backoff_factor: 1", ["train.grad_scaler.backoff_factor", "never leave"]),
        ("growth_interval: 0", ["train.grad_scaler.growth_interval", "growth_factor: 1"]),
        ("init_scale: 2, min_scale: 4", ["train.grad_scaler.min_scale", "init_scale: 2"]),
    ] {
        assert_says(&refused_with(&format!("train: {{dtype: fp16, grad_scaler: {{{keys}}}}}")), &parts);
    }
}

#[test]
fn tf32_is_taken_and_explained() {
    for key in ["allow_tf32", "tf32"] {
        let loaded = read(&format!("{MINIMAL}train: {{{key}: true, dtype: fp32}}\n"));
        assert_eq!(loaded.config.train.dtype, base::DType::F32);
        assert!(loaded.notices.iter().any(|n| n.contains(key) && n.contains("TF32")), "{:?}", loaded.notices);
    }
}

#[test]
fn timesteps_are_counted_as_each_peer_counts_them() {
    let range = |keys: &str| {
        let noise = with(&format!("train: {{{keys}}}")).train.noise;
        (noise.min_timestep, noise.max_timestep)
    };
    assert_eq!(range(""), (0, 999));
    assert_eq!(range("min_timestep: 200, max_timestep: 1000"), (200, 999));
    assert_eq!(range("min_denoising_steps: 0, max_denoising_steps: 999"), (0, 999));
    // ai-toolkit's index 0 is the noisiest timestep.
    assert_eq!(range("min_denoising_steps: 0, max_denoising_steps: 499"), (500, 999));
    assert_eq!(range("min_denoising_steps: 800"), (0, 199));
    let loaded = read(&format!("{MINIMAL}train: {{max_denoising_steps: 499}}\n"));
    assert!(loaded.notices.iter().any(|n| n.contains("timesteps 500 to 999")), "{:?}", loaded.notices);
}

#[test]
fn optimizers_are_named_as_users_write_them_and_come_with_their_own_rate_and_settings() {
    let config = with("train: {optimizer: Prodigy, optimizer_params: {d_coef: 2, betas: [0.9, 0.99]}}");
    assert_eq!((config.train.optimizer.as_str(), config.train.lr), ("prodigy", 1.0));
    assert_eq!((&config.train.optimizer_params["d_coef"], &config.train.optimizer_params["slice_p"]), (&2.0.into(), &1.into()));
    let config = with("train: {optimizer: AdamW8bit, lr: 5e-5}");
    assert_eq!((config.train.optimizer.as_str(), config.train.lr), ("adamw8bit", 5e-5));
    assert_eq!(with("train: {lr_scheduler: wsd, lr_scheduler_params: {decay_steps: 0.3}}").train.lr_scheduler, "warmup_stable_decay");
    for (text, words) in [
        ("optimizer_params: {betass: [0.9, 0.99]}", ["train.optimizer_params", "did you mean betas?"]),
        ("optimizer_params: {betas: [0.9, 1]}", ["train.optimizer_params", "betas"]),
        ("optimizer_params: {eps: .nan}", ["train.optimizer_params.eps", "finite"]),
        ("optimizer_params: {eps: }", ["train.optimizer_params.eps", "no value"]),
        ("optimizer: adafactor, optimizer_params: {warmup_init: true}", ["train.optimizer_params", "relative_step"]),
        ("lr_scheduler: cosine, lr_scheduler_params: {num_warmup_steps: 3}, lr_warmup_steps: 3", ["lr_warmup_steps", "num_warmup_steps"]),
        ("lr_scheduler: cosine, lr_scheduler_params: {min_lr: 1}", ["train.lr_scheduler", "above the learning rate"]),
        ("on_optimizer_change: maybe", ["train.on_optimizer_change", "stop or fresh"]),
        ("parameter_swapping_factor: 0", ["train.parameter_swapping_factor", "share"]),
        ("ema_config: {ema_decay: 1}", ["train.ema_config.ema_decay", "not including"]),
        ("param_groups: [{lr: 1e-4}]", ["train.param_groups[0].contains", "missing"]),
        ("param_groups: [{contains: a}, {contains: b, lr: 1, lr_scale: 2}]", ["train.param_groups[1].lr", "keep one"]),
        ("param_groups: [{contains: a, lrr: 1}]", ["nearest key", "`train.param_groups[0].lr`"]),
    ] {
        assert_says(&refused_with(&format!("train: {{{text}}}")), &words);
    }
}

#[test]
fn rates_that_mean_something_else_to_an_optimizer_are_noticed() {
    let notices = |text: &str| read(&format!("{MINIMAL}train: {{{text}}}\n")).notices;
    for (text, word) in [
        ("optimizer: prodigy, lr: 1e-4", "factor"),
        ("optimizer: dadaptlion, lr: 1e-4", "factor"),
        ("optimizer: automagic, lr: 0.1", "usually given"),
        ("lr_scheduler: cosine, lr_scheduler_params: {T_max: 100}", "as long as the run"),
    ] {
        assert!(notices(text).iter().any(|n| n.contains(word)), "{text}: {:?}", notices(text));
    }
    for text in ["optimizer: prodigy", "optimizer: prodigy, lr: 0.5", "optimizer: adamw, lr: 1e-4", "lr: 0.0, unet_lr: 1e-4"] {
        assert!(notices(text).is_empty(), "{text}: {:?}", notices(text));
    }
}
