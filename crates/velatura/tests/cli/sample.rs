//! `sample`: pictures that repeat, say what made them, and follow the LoRA.

use crate::place::Place;
use serde_json::json;
use std::path::PathBuf;

/// Draws one small picture with further arguments and returns its bytes.
#[track_caller]
fn draw(place: &Place, arguments: &[&str]) -> Vec<u8> {
    let all = ["sample", "--width", "64", "--height", "48", "--steps", "3", "--seed", "5", "--output", "out"];
    let done = place.run(&[&all[..], arguments].concat()).good();
    let paths: Vec<PathBuf> = done.stdout.lines().map(PathBuf::from).collect();
    assert!(paths.len() == 1 && paths[0].is_absolute(), "{}", done.stdout);
    std::fs::read(&paths[0]).unwrap()
}

/// The picture's settings, out of its text chunk.
fn parameters(bytes: &[u8]) -> String {
    let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let chunk = reader.info().utf8_text.iter().find(|chunk| chunk.keyword == "parameters").unwrap();
    chunk.get_text().unwrap()
}

fn pixels(bytes: &[u8]) -> image::RgbImage {
    image::load_from_memory(bytes).unwrap().into_rgb8()
}

const MODEL: [&str; 4] = ["--model", "model", "--prompt", "a red pattern, 猫"];

#[test]
fn the_same_seed_gives_the_same_picture_with_its_settings_inside() {
    for arch in ["sd15", "sd21"] {
        let place = Place::new(arch);
        let first = draw(&place, &MODEL);
        assert!(first == draw(&place, &MODEL));
        let image = pixels(&first);
        assert_eq!(image.dimensions(), (64, 48));
        assert!(image.pixels().any(|p| p != image.get_pixel(0, 0)), "the picture has one colour");
        let text = parameters(&first);
        for part in ["a red pattern, 猫", "Steps: 3", "Sampler: DDIM", "CFG scale: 7", "Seed: 5", "Size: 64x48"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(pixels(&first) != pixels(&draw(&place, &["--model", "model", "--prompt", "a red pattern, 猫 --d 6"])));
    }
}

#[test]
fn prompts_negative_prompts_guidance_and_samplers_all_matter() {
    let place = Place::new("sd15");
    let with = |more: &[&str]| pixels(&draw(&place, &[&MODEL[..], more].concat()));
    let plain = with(&[]);
    let others = [
        with(&["--negative", "a blue pattern"]),
        with(&["--guidance-scale", "1"]),
        with(&["--sampler", "euler"]),
        with(&["--dtype", "bf16"]),
        with(&["--dtype", "fp16"]),
        pixels(&draw(&place, &["--model", "model", "--prompt", "a blue pattern"])),
    ];
    for (i, other) in others.iter().enumerate() {
        assert!(*other != plain, "variant {i} changes nothing");
    }
    // Without guidance there is no negative prompt.
    assert!(with(&["--guidance-scale", "1", "--negative", "a blue pattern"]) == others[1]);
    assert!(parameters(&draw(&place, &[&MODEL[..], &["--sampler", "euler"]].concat())).contains("Euler"));
}

#[test]
fn prompts_of_several_chunks_are_read_to_their_end() {
    let place = Place::new("sd15");
    let long = "a red pattern with many words ".repeat(40);
    let prompt = |end: &str| pixels(&draw(&place, &["--model", "model", "--prompt", &format!("{long}{end}")]));
    assert!(prompt("blue") != prompt("green"));
    let negative = pixels(&draw(&place, &[&MODEL[..], &["--negative", &long]].concat()));
    assert!(negative != pixels(&draw(&place, &MODEL)));
}

#[test]
fn a_lora_changes_the_picture_by_its_strength() {
    let place = Place::new("sd15");
    place.train("lora", json!({"train": {"lr": 0.05, "steps": 6, "train_text_encoder": true}, "network": {"conv": 2}}));
    let plain = draw(&place, &MODEL);
    let with = |strength: &str| draw(&place, &[&MODEL[..], &["--lora", "lora/run/run.safetensors", "--strength", strength]].concat());
    assert!(pixels(&with("0")) == pixels(&plain));
    let (half, whole) = (pixels(&with("0.5")), pixels(&with("1")));
    assert!(pixels(&with("-1")) != whole);
    assert!(whole != pixels(&plain) && half != whole);
    place.run(&["convert", "--to", "diffusers", "lora/run/run.safetensors", "other.safetensors"]).good();
    let converted = pixels(&draw(&place, &[&MODEL[..], &["--lora", "other.safetensors"]].concat()));
    let most = converted.as_raw().iter().zip(whole.as_raw()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(most <= 4, "the same LoRA in the other layout is {most} of 255 away");
}

#[test]
fn a_config_is_enough_and_its_finished_lora_is_used() {
    let place = Place::new("sd15");
    let sample = json!({"prompts": ["a red pattern", "blue --d 9"], "width": 64, "height": 64, "sample_steps": 2, "sampler": "euler"});
    let changes = json!({"train": {"lr": 0.05, "disable_sampling": true}, "sample": sample});
    let config = place.config("job", changes);
    let error = place.run(&["sample", &config]).error();
    assert!(error.contains("run.safetensors"), "{error}");
    place.run(&["train", &config]).good();
    let files = |arguments: &[&str]| -> Vec<Vec<u8>> {
        let done = place.run(&[&["sample", &config, "--output", "out"], arguments].concat()).good();
        done.stdout.lines().map(|path| std::fs::read(path).unwrap()).collect()
    };
    let drawn = files(&[]);
    assert_eq!(drawn.len(), 2);
    assert!(parameters(&drawn[1]).contains("Seed: 9") && parameters(&drawn[1]).contains("Euler"));
    assert!(drawn == files(&[]) && drawn != files(&["--strength", "0"]));
}

#[test]
fn impossible_requests_are_refused() {
    let place = Place::new("sd15");
    let cases: [(&[&str], &str); 6] = [
        (&["--model", "model"], "--prompt"),
        (&["--model", "model", "--prompt", "x", "--sampler", "dpm"], "euler"),
        (&["--model", "model", "--prompt", "x --w 63"], "63"),
        (&["--model", "model", "--prompt", "x", "--strength", "nan"], "--strength"),
        (&["--model", "model", "--prompt", "x", "--lora", "nowhere.safetensors"], "nowhere.safetensors"),
        (&["--model", "nowhere.safetensors", "--prompt", "x"], "nowhere.safetensors"),
    ];
    for (arguments, word) in cases {
        let error = place.run(&[&["sample"], arguments].concat()).error();
        assert!(error.contains(word), "{word} is missing in: {error}");
    }
}
