//! Loss weights, thresholds, timesteps and pyramid noise against numbers that `tools/golden/diffusion/{weights,pyramid}.py` computed
//! from the formulas.

use serde_json::Value;
use velatura_diffusion::pyramid::Level;
use velatura_diffusion::weighting::like_noise_prediction;
use velatura_diffusion::{Bell, Distribution, Draw, Huber, HuberSchedule, NoiseSchedule, NoiseShape, Pyramid, SchedulerConfig, Weighting};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|v| v as f32).collect()
}

fn wholes(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|v| v as usize).collect()
}

/// The words of a case's name after the first, as numbers.
fn settings(name: &str) -> Vec<f64> {
    name.split(' ').filter_map(|word| word.parse().ok()).collect()
}

#[track_caller]
fn assert_close(what: &str, ours: f64, theirs: f64, allowed: f64) {
    assert!((ours - theirs).abs() <= allowed * theirs.abs().max(1e-6), "{what}: {ours:e} against {theirs:e}");
}

#[test]
fn weights_and_thresholds_equal_their_formulas_in_double_precision() {
    let golden = fixture("weights.json");
    let timesteps = wholes(&golden["timesteps"]);
    for case in golden["cases"].as_array().unwrap() {
        let config = SchedulerConfig::from_json(&case["config"].to_string()).unwrap();
        let schedule = NoiseSchedule::new(&config).unwrap();
        // Noise levels are f32, as diffusers has them; near pure noise and near none a last digit of ᾱ is much of the SNR.
        let allowed = if config.rescale_betas_zero_snr { 2e-3 } else { 2e-4 };
        for (name, theirs) in case["weights"].as_object().unwrap() {
            let gamma = settings(name).first().copied().unwrap_or_default();
            let weight = |snr: f64| match name.split(' ').next().unwrap() {
                "min_snr" => Weighting::MinSnr { gamma }.weight(schedule.prediction(), snr),
                "soft_min_snr" => Weighting::SoftMinSnr { gamma }.weight(schedule.prediction(), snr),
                "debiased" => Weighting::Debiased.weight(schedule.prediction(), snr),
                "like_noise" => like_noise_prediction(snr),
                other => panic!("{other}"),
            };
            for (t, theirs) in timesteps.iter().zip(numbers(theirs)) {
                let ours = weight(schedule.snr(*t));
                assert_close(&format!("{name} at {t} of {}", case["config"]), ours, theirs, allowed);
            }
        }
        for (name, kinds) in case["thresholds"].as_object().unwrap() {
            let [c, scale] = settings(name)[..] else { panic!("{name}") };
            for (kind, theirs) in kinds.as_object().unwrap() {
                let kinds =
                    [("constant", HuberSchedule::Constant), ("exponential", HuberSchedule::Exponential), ("snr", HuberSchedule::Snr)];
                let huber = Huber { schedule: kinds.iter().find(|(name, _)| name == kind).unwrap().1, c, scale };
                for (t, theirs) in timesteps.iter().zip(numbers(theirs)) {
                    assert_close(&format!("{kind} {name} at {t}"), huber.threshold(&schedule, *t), theirs, allowed);
                }
            }
        }
    }
}

#[test]
fn offsets_of_the_noise_follow_the_means_of_the_latents_channels() {
    for case in fixture("weights.json")["offsets"].as_array().unwrap() {
        let [offset, adaptive] = ["offset", "scale"].map(|key| case[key].as_f64().unwrap() as f32);
        let ours = NoiseShape { offset, adaptive, pyramid: None }.offsets(&floats(&case["latent"]), 4);
        for (ours, theirs) in ours.into_iter().zip(numbers(&case["strengths"])) {
            assert_close(&format!("offset {offset}, scale {adaptive}"), f64::from(ours), theirs, 1e-6);
        }
    }
}

#[test]
fn bells_over_the_timesteps_equal_their_formula() {
    let golden = fixture("weights.json");
    for (name, bell) in [("whole", Bell::Whole), ("noisy_side", Bell::NoisySide)] {
        let ours = bell.weights(1000);
        for (t, theirs) in wholes(&golden["timesteps"]).into_iter().zip(numbers(&golden["bells"][name])) {
            assert_close(&format!("{name} at {t}"), ours[t], theirs, 1e-9);
        }
    }
}

#[test]
fn a_tenth_of_the_timesteps_lies_below_each_decile_of_their_distribution() {
    const DRAWS: u64 = 40_000;
    for (name, quantiles) in fixture("weights.json")["quantiles"].as_object().unwrap() {
        let distribution = match (name.split(' ').next().unwrap(), &settings(name)[..]) {
            ("uniform", _) => Distribution::Uniform,
            ("content", _) => Distribution::Content,
            ("style", _) => Distribution::Style,
            ("logit_normal", &[mean, std]) => Distribution::LogitNormal { mean, std },
            (other, _) => panic!("{other}"),
        };
        let range = 100..=100_099;
        let drawn: Vec<f64> = (0..DRAWS)
            .map(|i| distribution.draw(Draw { seed: 3, step: i / 4, item: i % 4 }, range.clone()))
            .map(|t| (t as f64 + 0.5 - 100.0) / 100_000.0)
            .collect();
        for (i, quantile) in numbers(quantiles).into_iter().enumerate() {
            let share = drawn.iter().filter(|t| **t < quantile).count() as f64 / DRAWS as f64;
            // Three standard deviations of a share of a half.
            assert!((share - (i + 1) as f64 / 10.0).abs() < 0.0075, "{name}: {share} lie below {quantile}");
        }
    }
}

#[test]
fn pyramid_noise_is_the_sum_of_its_levels_at_a_spread_of_one() {
    for case in fixture("pyramid.json")["cases"].as_array().unwrap() {
        let pair = |value: &Value| <[usize; 2]>::try_from(wholes(value)).unwrap();
        let levels: Vec<Level> =
            case["levels"].as_array().unwrap().iter().map(|l| Level { size: pair(&l["size"]), values: floats(&l["values"]) }).collect();
        let mut noise = floats(&case["noise"]);
        let pyramid = Pyramid { iterations: levels.len(), discount: case["discount"].as_f64().unwrap() as f32 };
        pyramid.add(pair(&case["size"]), &levels, &mut noise);
        for (ours, theirs) in noise.iter().zip(floats(&case["out"])) {
            assert!((ours - theirs).abs() < 1e-5, "{ours} against {theirs}");
        }
    }
}
