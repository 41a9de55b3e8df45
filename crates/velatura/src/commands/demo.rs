//! `velatura demo`: the whole road in one command, on a tiny model that the binary brings along.

use crate::commands::{open, train};
use crate::output;
use crate::sheet::{Row, sheet};
use crate::signals;
use crate::terminal::Terminal;
use ::train::event::{Event, Reporter};
use ::train::sample::{self, Picture, Request};
use ::train::studio::Studio;
use ::train::{Model, Start};
use anyhow::{Context, Result};
use base::DType;
use clap::Args;
use config::RunConfig;
use include_dir::{Dir, DirEntry, include_dir};
use std::path::{Path, PathBuf};

static MODEL: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../assets/tiny-emoji");
static DATASET: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../assets/dataset");
static CONFIG: &str = include_str!("../../../../assets/demo.yaml");
static LICENSES: &str = include_str!("../../../../assets/LICENSES.md");

/// Pictures that are shown: names that the base model knows and the dataset has in the other style.
const PROMPTS: [&str; 10] = [
    "a grinning face",
    "a cat face",
    "a rocket",
    "a house",
    "a strawberry",
    "a mushroom",
    "a light bulb",
    "a penguin",
    "a castle",
    "a turtle",
];

#[derive(Args)]
pub struct Arguments {
    /// Folder for everything that the demo makes.
    #[arg(long, default_value = "velatura-demo")]
    output: PathBuf,
    /// Optimizer steps, to try a shorter or longer run.
    #[arg(long)]
    steps: Option<u64>,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let folder = std::path::absolute(&arguments.output).context("the output folder has no absolute path")?;
    unpack(&folder)?;
    let loaded = load(&folder, arguments.steps)?;
    let config = loaded.config.clone();
    let mut terminal = Terminal::new(1);
    let before = draw(&config, None, "drawing \"before\"", &mut terminal)?;
    drop(terminal);
    let finished = train::train(loaded, Start::Over)?;
    let mut terminal = Terminal::new(1);
    let after = draw(&config, Some(&finished.lora), "drawing \"after\"", &mut terminal)?;
    drop(terminal);
    let rows = [Row { title: "before: the base model", pictures: &before }, Row { title: "after: with the LoRA", pictures: &after }];
    let labels: Vec<String> = PROMPTS.iter().map(|p| p.to_string()).collect();
    let path = folder.join("before-after.png");
    sample::write_png(&path, &sheet(&rows, &labels, 2)?)?;
    output::print(format_args!("before and after: {}", path.display()))?;
    output::print(format_args!("LoRA: {}", finished.lora.display()))
}

/// Writes model, pictures and config, so that `velatura train` can be tried on them by hand.
fn unpack(folder: &Path) -> Result<()> {
    write_dir(&MODEL, &folder.join("tiny-emoji"))?;
    write_dir(&DATASET, &folder.join("dataset"))?;
    base::fs::write_atomic(&folder.join("LICENSES.md"), LICENSES.as_bytes())?;
    base::fs::write_atomic(&folder.join("demo.yaml"), CONFIG.as_bytes())
}

fn write_dir(dir: &Dir, folder: &Path) -> Result<()> {
    base::fs::create_dir(folder)?;
    for entry in dir.entries() {
        let name = entry.path().file_name().context("an embedded file has a name")?;
        match entry {
            DirEntry::Dir(dir) => write_dir(dir, &folder.join(name))?,
            DirEntry::File(file) => base::fs::write_atomic(&folder.join(name), file.contents())?,
        }
    }
    Ok(())
}

/// The demo's config with absolute paths.
fn load(folder: &Path, steps: Option<u64>) -> Result<config::Loaded> {
    let path = |name: &str| folder.join(name).display().to_string();
    let mut overrides = vec![
        ("model.name_or_path".to_string(), path("tiny-emoji")),
        ("datasets.0.folder_path".to_string(), path("dataset")),
        ("training_folder".to_string(), path("output")),
    ];
    overrides.extend(steps.map(|steps| ("train.steps".to_string(), steps.to_string())));
    config::load(CONFIG.as_bytes(), "demo.yaml", &overrides)
}

fn draw(config: &RunConfig, lora: Option<&Path>, what: &str, terminal: &mut Terminal) -> Result<Vec<Picture>> {
    let model = Model::open(Path::new(&config.model.name_or_path), None, &config.model)?;
    let request = |(i, prompt): (usize, &&str)| {
        let mut sample = config.sample.parse_prompt(&format!("{}, {prompt}", config.trigger_word.as_deref().unwrap_or_default()))?;
        sample.seed += i as u64;
        Request::new(sample, &model)
    };
    let requests = PROMPTS.iter().enumerate().map(request).collect::<Result<Vec<_>>>()?;
    let lora = lora.map(weights::lora::read).transpose()?;
    let mut studio = Studio::open(model, lora.as_ref(), 1.0, &requests, DType::F32, open::backend()?, terminal)?;
    terminal.report(Event::Begin { what, total: requests.len() as u64 });
    let mut pictures = Vec::new();
    let interrupt = signals::install()?;
    for (done, request) in requests.iter().enumerate() {
        if let Some(signal) = interrupt.signal() {
            return Err(::train::Interrupted { signal, saved: None }.into());
        }
        let noise = sample::noise(studio.model(), request);
        pictures.push(studio.draw(request, config.sample.sampler, &noise)?);
        terminal.report(Event::Done { done: done as u64 + 1 });
    }
    terminal.report(Event::End);
    Ok(pictures)
}
