//! `sample:` pictures made while training.

use crate::findings::Findings;
use crate::run;
use crate::scalar::{Flag, Number, TextOrFalse, Whole};
use crate::section::section;
use anyhow::{Context, Result, bail};
use serde::Serialize;

section! {
    RawSample {
        /// `ddim` or `euler`.
        sampler: String,
        /// Steps between samples; 0: none but those at the end.
        #[serde(alias = "every")]
        sample_every: Whole,
        /// Passes over the data between samples, instead of `sample_every`.
        sample_every_epochs: Whole,
        /// Pixels; a multiple of 8.
        width: Whole,
        /// Pixels; a multiple of 8.
        height: Whole,
        /// A prompt a line, with inline flags: `--n` negative, `--w`, `--h`, `--d` seed, `--l` guidance, `--s` steps.
        prompts: Vec<String>,
        samples: Vec<RawPrompt>,
        /// Negative prompt.
        neg: TextOrFalse,
        /// Of the first picture's noise.
        seed: Whole,
        /// true: the seed grows by 1 from prompt to prompt.
        walk_seed: Flag,
        /// How strongly the prompt counts (classifier-free guidance); 1: as it is.
        guidance_scale: Number,
        /// Steps of the sampler.
        sample_steps: Whole,
    }
    no effect {
        format: String => "samples are PNG files",
        num_frames: Whole => "these are pictures",
        fps: Number => "these are pictures",
        refiner_start_at: Number => "there is no refiner",
        adapter_conditioning_scale: Number => "there is no such adapter",
    }
    not yet { sample_start_step: 0, network_multiplier: 1.0, guidance_rescale: 0.0, extra_values: "", }
}

section! {
    /// One entry of `samples`.
    RawPrompt {
        /// What the picture is to show.
        prompt: String,
        /// Negative prompt; default: `sample.neg`, as with the keys below.
        #[serde(alias = "negative")]
        neg: TextOrFalse,
        /// Pixels; a multiple of 8.
        width: Whole,
        /// Pixels; a multiple of 8.
        height: Whole,
        /// Of the first picture's noise.
        seed: Whole,
        /// How strongly the prompt counts (classifier-free guidance); 1: as it is.
        guidance_scale: Number,
        /// Steps of the sampler.
        sample_steps: Whole,
    }
    no effect { fps: Number => "these are pictures", num_frames: Whole => "these are pictures", }
    not yet { ctrl_img: "", ctrl_idx: 0, ctrl_img_1: "", ctrl_img_2: "", ctrl_img_3: "", network_multiplier: 1.0, do_cfg_norm: false, }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    Ddim,
    Euler,
}

/// One picture to make, with everything that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplePrompt {
    pub prompt: String,
    pub neg: String,
    pub width: u32,
    pub height: u32,
    pub seed: u64,
    pub guidance_scale: f64,
    pub sample_steps: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleConfig {
    pub sampler: Sampler,
    /// 0: none while training, or as `sample_every_epochs` says.
    pub sample_every: u64,
    /// 0: `sample_every` counts. A run counts its epochs in steps and puts them there.
    pub sample_every_epochs: u64,
    /// Defaults for prompts that come from elsewhere (the command line).
    pub width: u32,
    pub height: u32,
    pub neg: String,
    pub seed: u64,
    pub guidance_scale: f64,
    pub sample_steps: usize,
    pub samples: Vec<SamplePrompt>,
}

impl SampleConfig {
    /// Reads a prompt with inline flags (`a cat --n blurry --w 512 --s 30`); what it leaves out is as in this config.
    pub fn parse_prompt(&self, line: &str) -> Result<SamplePrompt> {
        self.parse_seeded(line, self.seed)
    }

    fn parse_seeded(&self, line: &str, seed: u64) -> Result<SamplePrompt> {
        let mut prompt = self.prompt_with_defaults(seed);
        let whole = || format!("in the sample prompt `{}`", base::excerpt(line, 80));
        let mut parts = format!(" {line}");
        let flags: Vec<(usize, String)> = flag_places(&parts);
        for (start, name) in flags.iter().rev() {
            let value = parts[start + 3 + name.len()..].trim().to_string();
            parts.truncate(*start);
            prompt.set(name, &value).with_context(whole)?;
        }
        prompt.prompt = parts.trim().to_string();
        prompt.check().with_context(whole)?;
        Ok(prompt)
    }

    fn prompt_with_defaults(&self, seed: u64) -> SamplePrompt {
        SamplePrompt {
            prompt: String::new(),
            neg: self.neg.clone(),
            width: self.width,
            height: self.height,
            seed,
            guidance_scale: self.guidance_scale,
            sample_steps: self.sample_steps,
        }
    }
}

impl Default for SamplePrompt {
    fn default() -> SamplePrompt {
        let (prompt, neg) = (String::new(), String::new());
        SamplePrompt { prompt, neg, width: 512, height: 512, seed: 0, guidance_scale: 7.0, sample_steps: 20 }
    }
}

impl SamplePrompt {
    fn set(&mut self, flag: &str, value: &str) -> Result<()> {
        let wrong = || format!("--{flag} {value}: not a number");
        match flag {
            "n" | "neg" => self.neg = value.to_string(),
            "w" | "width" => self.width = value.parse().with_context(wrong)?,
            "h" | "height" => self.height = value.parse().with_context(wrong)?,
            "d" | "seed" => self.seed = value.parse().with_context(wrong)?,
            "l" | "cfg" => self.guidance_scale = value.parse().with_context(wrong)?,
            "s" | "steps" => self.sample_steps = value.parse().with_context(wrong)?,
            "m" | "p2" | "n2" | "gr" | "a" | "ref" | "ev" | "frames" | "fps" | "ctrl_img" | "ctrl_idx" | "g" => {
                bail!("--{flag} is not supported here; --n, --w, --h, --d, --l and --s are")
            }
            other => match other.split_once('=') {
                Some((name, value)) => bail!("--{other} is written --{name} {value}; --n, --w, --h, --d, --l and --s are known"),
                None => bail!("unknown flag --{other}; --n, --w, --h, --d, --l and --s are known"),
            },
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.faults().into_iter().next().map_or(Ok(()), |fault| Err(anyhow::anyhow!(fault)))
    }

    /// Everything that is out of its range, each by its key.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, side) in [("width", self.width), ("height", self.height)] {
            if !(8..=8192).contains(&side) {
                faults.push(format!("{name}: a sample's {name} of {side} pixels is not between 8 and 8192"));
            } else if !side.is_multiple_of(8) {
                faults.push(format!("{name}: a sample's {name} of {side} pixels is not a multiple of 8"));
            }
        }
        if !(self.guidance_scale.is_finite() && self.guidance_scale >= 0.0) {
            faults.push(format!("guidance_scale: a guidance scale of {} is impossible", self.guidance_scale));
        }
        if !(1..=1000).contains(&self.sample_steps) {
            faults.push(format!("sample_steps: {} sampling steps is not between 1 and 1000", self.sample_steps));
        }
        faults
    }
}

/// A prompt line of another program without the flags that can't be used here, and what is wrong with each.
pub(crate) fn usable_line(line: &str) -> (String, Vec<String>) {
    let padded = format!(" {line}");
    let places = flag_places(&padded);
    let ends = places.iter().skip(1).map(|(start, _)| *start).chain([padded.len()]);
    let mut usable = padded[..places.first().map_or(padded.len(), |(start, _)| *start)].to_string();
    let mut wrong = Vec::new();
    for ((start, name), end) in places.iter().zip(ends) {
        let mut alone = SamplePrompt::default();
        match alone.set(name, padded[start + 3 + name.len()..end].trim()).and_then(|()| alone.check()) {
            Ok(()) => usable.push_str(&padded[*start..end]),
            Err(error) => wrong.push(format!("`{}`: {error}", padded[*start..end].trim())),
        }
    }
    (usable.trim().to_string(), wrong)
}

/// Whether an entry of `sample.samples` could be used.
pub(crate) fn check_entry(entry: serde_json::Value) -> Result<()> {
    let raw: RawPrompt = serde_json::from_value(entry)?;
    entry_prompt(raw, SamplePrompt::default()).check()
}

/// Where ` --name` stands in a line, and the names. Whatever else stands behind the name belongs to it, for it to be refused.
fn flag_places(line: &str) -> Vec<(usize, String)> {
    line.match_indices(" --")
        .filter_map(|(start, _)| {
            let name: String = line[start + 3..].chars().take_while(|c| !c.is_whitespace()).collect();
            name.starts_with(|c: char| c.is_alphanumeric()).then_some((start, name))
        })
        .collect()
}

pub(crate) fn resolve(raw: RawSample, trigger: Option<&str>, findings: &mut Findings) -> SampleConfig {
    raw.check_foreign("sample", findings);
    let keys = ["sample.sample_every", "sample.sample_every_epochs"];
    let every = crate::save::interval(keys, [raw.sample_every, raw.sample_every_epochs], 100);
    let (sample_every, sample_every_epochs) = findings.or(every, (100, 0));
    let mut config = SampleConfig {
        sampler: sampler(raw.sampler.as_deref(), findings),
        sample_every,
        sample_every_epochs,
        width: side(raw.width),
        height: side(raw.height),
        neg: raw.neg.map(|n| n.0).unwrap_or_default(),
        seed: raw.seed.map_or(0, |s| s.0),
        guidance_scale: raw.guidance_scale.map_or(7.0, |g| g.0),
        sample_steps: raw.sample_steps.map_or(20, |s| usize::try_from(s.0).unwrap_or(usize::MAX)),
        samples: Vec::new(),
    };
    let faults = config.prompt_with_defaults(0).faults();
    if !faults.is_empty() {
        faults.iter().for_each(|fault| findings.wrong(format!("sample.{fault}")));
        // What every prompt takes over would be wrong with each of them again.
        let SamplePrompt { width, height, guidance_scale, sample_steps, .. } = SamplePrompt::default();
        config = SampleConfig { width, height, guidance_scale, sample_steps, ..config };
    }
    let walk = u64::from(raw.walk_seed.is_some_and(|f| f.0));
    for (i, line) in raw.prompts.unwrap_or_default().into_iter().enumerate() {
        let seed = config.seed.wrapping_add(walk * config.samples.len() as u64);
        let prompt = config.parse_seeded(&line, seed).with_context(|| format!("sample.prompts[{i}]"));
        let mut prompt = findings.or(prompt, SamplePrompt::default());
        prompt.prompt = with_trigger(&prompt.prompt, trigger);
        config.samples.push(prompt);
    }
    for (i, entry) in raw.samples.unwrap_or_default().into_iter().enumerate() {
        let section = format!("sample.samples[{i}]");
        entry.check_foreign(&section, findings);
        let seed = config.seed.wrapping_add(walk * config.samples.len() as u64);
        let mut prompt = entry_prompt(entry, config.prompt_with_defaults(seed));
        prompt.faults().iter().for_each(|fault| findings.wrong(format!("{section}.{fault}")));
        prompt.prompt = with_trigger(&prompt.prompt, trigger);
        config.samples.push(prompt);
    }
    config
}

fn entry_prompt(raw: RawPrompt, defaults: SamplePrompt) -> SamplePrompt {
    SamplePrompt {
        prompt: run::text(raw.prompt).unwrap_or_default(),
        neg: raw.neg.map_or(defaults.neg, |n| n.0),
        width: raw.width.map_or(defaults.width, |w| u32::try_from(w.0).unwrap_or(u32::MAX)),
        height: raw.height.map_or(defaults.height, |h| u32::try_from(h.0).unwrap_or(u32::MAX)),
        seed: raw.seed.map_or(defaults.seed, |s| s.0),
        guidance_scale: raw.guidance_scale.map_or(defaults.guidance_scale, |g| g.0),
        sample_steps: raw.sample_steps.map_or(defaults.sample_steps, |s| usize::try_from(s.0).unwrap_or(usize::MAX)),
    }
}

/// Too large a number stays too large, for the check of the range to name it.
fn side(value: Option<Whole>) -> u32 {
    value.map_or(512, |side| u32::try_from(side.0).unwrap_or(u32::MAX))
}

fn sampler(name: Option<&str>, findings: &mut Findings) -> Sampler {
    let read = match name.unwrap_or("ddim") {
        "ddim" => Ok(Sampler::Ddim),
        "euler" => Ok(Sampler::Euler),
        "ddpm" => {
            findings.notice("sample.sampler: ddpm is sampled by ddim here");
            Ok(Sampler::Ddim)
        }
        "flowmatch" => Err(anyhow::anyhow!("sample.sampler: flowmatch is for flow-matching models; use ddim or euler")),
        other => Err(anyhow::anyhow!("sample.sampler: {other} is not supported; ddim and euler are")),
    };
    findings.or(read, Sampler::Ddim)
}

/// Prompts get the trigger word only where they ask for it; without one the placeholder goes away.
fn with_trigger(prompt: &str, trigger: Option<&str>) -> String {
    base::placeholder::fill(prompt, trigger.unwrap_or_default()).trim().to_string()
}
