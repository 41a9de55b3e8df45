//! Noise schedules and samplers against diffusers; `tools/golden/diffusion/*.py` made the numbers.

use serde_json::Value;
use velatura_diffusion::{NoiseSchedule, Prediction, SchedulerConfig, sampler};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32).collect()
}

fn schedule(config: &Value) -> NoiseSchedule {
    NoiseSchedule::new(&SchedulerConfig::from_json(&config.to_string()).expect("a config")).expect("a schedule")
}

/// Largest difference, relative to the largest value.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let scale = theirs.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
    ours.iter().zip(theirs).fold(0.0f32, |m, (a, b)| m.max(if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY })) / scale
}

#[test]
fn noise_levels_noisy_latents_and_targets_equal_diffusers() {
    let golden = fixture("schedules.json");
    let (latent, noise) = (floats(&golden["latent"]), floats(&golden["noise"]));
    for case in golden["cases"].as_array().unwrap() {
        let schedule = schedule(&case["config"]);
        for (i, t) in golden["timesteps"].as_array().unwrap().iter().enumerate() {
            let t = t.as_u64().unwrap() as usize;
            let (ours, theirs) = (schedule.alphas_cumprod()[t], case["alphas_cumprod"][i].as_f64().unwrap() as f32);
            // A zero terminal SNR subtracts nearly equal numbers: there the last digits are the rounding's.
            let allowed = 1e-6 * theirs + if case["config"]["rescale_betas_zero_snr"] == true { 1e-9 } else { 0.0 };
            assert!((ours - theirs).abs() <= allowed, "{} t {t}: {ours:e} against {theirs:e}", case["config"]);
            let mut out = vec![0.0; latent.len()];
            schedule.add_noise(t, &latent, &noise, &mut out);
            assert!(difference(&out, &floats(&case["noisy"][i])) < 1e-5, "{} t {t}: noisy", case["config"]);
            schedule.target(t, &latent, &noise, &mut out);
            let target = if schedule.prediction() == Prediction::Epsilon { noise.clone() } else { floats(&case["velocity"][i]) };
            assert!(difference(&out, &target) < 1e-5, "{} t {t}: target", case["config"]);
        }
    }
}

#[test]
fn every_state_of_ddim_and_euler_equals_diffusers() {
    let golden = fixture("samplers.json");
    for case in golden["cases"].as_array().unwrap() {
        let label = format!("{} {} steps {}", case["sampler"], case["steps"], case["config"]);
        let steps = case["steps"].as_u64().unwrap() as usize;
        let sampler = sampler::build(case["sampler"].as_str().unwrap(), &schedule(&case["config"]), steps).unwrap();
        assert!(difference(sampler.timesteps(), &floats(&case["timesteps"])) < 1e-6, "{label}: {:?}", sampler.timesteps());
        let mut state = floats(&golden["noise"]);
        sampler.init_noise(&mut state);
        assert!(difference(&state, &floats(&case["start"])) < 1e-5, "{label}: start noise");
        let mut input = vec![0.0; state.len()];
        sampler.scale_input(0, &state, &mut input);
        assert!(difference(&input, &floats(&case["first_input"])) < 1e-5, "{label}: first input");
        for (i, theirs) in case["states"].as_array().unwrap().iter().enumerate() {
            sampler.step(i, &floats(&golden["outputs"][i]), &mut state);
            let theirs = floats(theirs);
            assert!(difference(&state, &theirs) < 2e-5, "{label}: step {i}: {state:?} against {theirs:?}");
        }
    }
}

#[test]
fn a_noise_model_is_not_sampled_from_pure_noise_by_ddim() {
    let config = r#"{"rescale_betas_zero_snr": true, "timestep_spacing": "trailing"}"#;
    let schedule = NoiseSchedule::new(&SchedulerConfig::from_json(config).unwrap()).unwrap();
    assert!(sampler::build("ddim", &schedule, 5).err().unwrap().to_string().contains("zero terminal SNR"));
}
