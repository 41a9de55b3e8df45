//! A temporary folder with a tiny model, pictures and configs, and the program run in it.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use train::metrics::{Row, Seconds};
use weights::lora::LoraFile;

const PROGRAM: &str = env!("CARGO_BIN_EXE_velatura");

pub struct Place {
    dir: TempDir,
}

/// What a finished process left.
#[derive(Debug)]
pub struct Done {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    fn of(output: Output) -> Done {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let done = Done { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        done
    }

    /// Fails unless the process succeeded.
    #[track_caller]
    pub fn good(self) -> Done {
        assert_eq!(self.status, Some(0), "{}{}", self.stdout, self.stderr);
        self
    }

    /// The error of a process that failed: the end of what it says, and the only line that begins so with those indented behind it.
    #[track_caller]
    pub fn error(&self) -> String {
        assert_eq!(self.status, Some(1), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{}", self.stderr);
        let before: usize = self.stderr.split_inclusive('\n').take_while(|line| !line.starts_with("error: ")).map(str::len).sum();
        let error = self.stderr[before..].strip_prefix("error: ").unwrap();
        // An error of several lines has them indented.
        assert!(error.lines().skip(1).all(|line| line.starts_with("  ")), "the error is not the end:\n{}", self.stderr);
        error.trim_end().to_string()
    }
}

impl Place {
    /// With a model of `arch` in `model/` and seven captioned pictures of three shapes in `pictures/`.
    pub fn new(arch: &str) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        place.run(&["dev", "make-tiny", "--arch", arch, "model"]).good();
        std::fs::create_dir(place.path("pictures")).unwrap();
        let sizes = [(64, 64), (96, 48), (64, 64), (48, 96), (70, 66), (64, 64), (100, 50)];
        let colours = ["red", "green", "blue", "yellow", "white", "black", "orange"];
        for (i, ((width, height), colour)) in sizes.into_iter().zip(colours).enumerate() {
            let shade = |x: u32, y: u32| [(x * 3 + i as u32 * 31) as u8, (y * 4) as u8, (x * y + i as u32) as u8];
            let picture = image::RgbImage::from_fn(width, height, |x, y| image::Rgb(shade(x, y)));
            picture.save(place.path(&format!("pictures/{i}.png"))).unwrap();
            place.write(&format!("pictures/{i}.txt"), format!("a {colour} pattern, number {i}"));
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Writes the config `<file>.yaml` (JSON is YAML): a small run named `run` in the folder `<file>`, changed by `changes`.
    pub fn config(&self, file: &str, changes: Value) -> String {
        let mut config = json!({
            "name": "run",
            "training_folder": file,
            "cache_dir": "cache",
            "seed": 7,
            "model": {"name_or_path": "model"},
            "network": {"linear": 4, "linear_alpha": 4},
            "datasets": [{"folder_path": "pictures", "resolution": 64}],
            "train": {"steps": 4, "lr": 1e-3, "dtype": "fp32"},
            "save": {"save_every": 1000},
        });
        merge(&mut config, changes);
        self.write(&format!("{file}.yaml"), serde_json::to_string_pretty(&config).unwrap());
        format!("{file}.yaml")
    }

    /// Overwrites the first number of a tensor of the model with an infinite one.
    pub fn spoil(&self, component: &str, tensor: &str) {
        let name = if component == "text_encoder" { "model" } else { "diffusion_pytorch_model" };
        let file = format!("model/{component}/{name}.safetensors");
        let mut bytes = self.read(&file);
        let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
        assert_eq!(header[tensor]["dtype"], "F16");
        let start = 8 + header_bytes + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        bytes[start..start + 2].copy_from_slice(&0x7c00u16.to_le_bytes());
        self.write(&file, bytes);
    }

    /// Trains a fresh config to the end.
    pub fn train(&self, file: &str, changes: Value) -> Done {
        let config = self.config(file, changes);
        self.run(&["train", &config]).good()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.at_home(Command::new(PROGRAM), arguments)
    }

    /// The program with files limited to so many bytes: writes then meet what they meet on a full disk. The limit can be lifted.
    pub fn cramped(&self, arguments: &[&str], bytes: u64) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec prlimit --fsize=$0:unlimited \"$@\"", &bytes.to_string(), PROGRAM]);
        self.at_home(shell, arguments)
    }

    fn at_home(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(arguments).current_dir(self.dir.path()).env("HF_HOME", self.path("hub")).env("HF_HUB_OFFLINE", "1");
        for name in ["HF_ENDPOINT", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "RUST_BACKTRACE"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    /// Starts the program, waits until the run of `file` has `rows` rows of metrics, and sends it a signal. The run may have ended
    /// before the signal came.
    pub fn run_until(&self, arguments: &[&str], file: &str, rows: usize, signal: &str) -> Done {
        self.run_until_then(arguments, file, rows, signal, || {})
    }

    /// Like [`Place::run_until`], doing something before the signal is sent.
    pub fn run_until_then(&self, arguments: &[&str], file: &str, rows: usize, signal: &str, then: impl FnOnce()) -> Done {
        self.follow(self.command(arguments), file, rows, |child| {
            then();
            send(child, signal);
        })
    }

    /// Runs a command to its end, and does something as soon as the run of `file` has `rows` rows of metrics.
    pub fn follow(&self, mut command: Command, file: &str, rows: usize, then: impl FnOnce(&Child)) -> Done {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while self.rows_so_far(file) < rows && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        then(&child);
        Done::of(child.wait_with_output().unwrap())
    }

    /// Rows of metrics that the run of `file` has written.
    pub fn rows_so_far(&self, file: &str) -> usize {
        let text = std::fs::read(self.path(&format!("{file}/run/metrics.jsonl"))).unwrap_or_default();
        text.iter().filter(|b| **b == b'\n').count()
    }

    pub fn rows(&self, file: &str) -> Vec<Row> {
        train::metrics::read(&self.path(&format!("{file}/run/metrics.jsonl"))).unwrap()
    }

    /// The finished LoRA's bytes.
    pub fn lora_bytes(&self, file: &str) -> Vec<u8> {
        self.read(&format!("{file}/run/run.safetensors"))
    }

    pub fn lora(&self, path: &str) -> LoraFile {
        weights::lora::read(&self.path(path)).unwrap()
    }

    /// Two runs came to the same bits.
    #[track_caller]
    pub fn assert_same_run(&self, a: &str, b: &str) {
        let rows = |file: &str| self.rows(file).into_iter().map(essence).collect::<Vec<_>>();
        assert_eq!(rows(a), rows(b), "the metrics of {a} and {b} differ");
        assert!(self.lora_bytes(a) == self.lora_bytes(b), "the LoRAs of {a} and {b} differ");
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }
}

/// What of a row must repeat: all but times and memory, and what was only measured.
fn essence(row: Row) -> Row {
    Row { seconds: Seconds::default(), peak_bytes: 0, validation_loss: None, ..row }
}

/// Sends a signal by name (`INT`, `TERM`, `KILL`); a process that has ended is no error.
pub fn send(child: &Child, signal: &str) {
    Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
}

/// Puts `changes` over `config`; `null` removes a key, lists of objects are merged entry by entry.
fn merge(config: &mut Value, changes: Value) {
    match (config, changes) {
        (Value::Object(config), Value::Object(changes)) => {
            for (key, change) in changes {
                match change {
                    Value::Null => drop(config.remove(&key)),
                    change => merge(config.entry(key).or_insert(Value::Null), change),
                }
            }
        }
        (Value::Array(config), Value::Array(changes)) if config.iter().chain(&changes).all(Value::is_object) => {
            for (i, change) in changes.into_iter().enumerate() {
                match config.get_mut(i) {
                    Some(entry) => merge(entry, change),
                    None => config.push(change),
                }
            }
        }
        (config, changes) => *config = changes,
    }
}
