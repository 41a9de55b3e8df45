//! The side of the reader: starts the decoder's process and asks it.

use super::{COMMAND, Picture, Reply, Request};
use anyhow::{Context, Result, anyhow, ensure};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says which program is a decoder when it is started with [`COMMAND`]. The first word counts; without one nothing is ever started.
pub fn use_program(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// A decoder in a process of its own, which ends with this.
pub struct Decoder {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Decoder {
    pub fn start() -> Result<Decoder> {
        let program = PROGRAM.get().context("AVIF pictures can't be read here: there is no program that decodes them")?;
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Signals from the terminal are for the run, which lets the decoder finish what it has begun.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().with_context(|| format!("can't start {} as a decoder of AVIF pictures", program.display()))?;
        let to = child.stdin.take().context("the decoder has no input")?;
        let from = child.stdout.take().context("the decoder has no output")?;
        Ok(Decoder { child, to, from })
    }

    /// Decodes one picture, which must be of the size that was declared for it.
    pub fn decode(&mut self, stream: &[u8], (width, height): (u32, u32), operating_point: u8) -> Result<Picture> {
        let length = u32::try_from(stream.len()).context("a stream of 4 GiB")?;
        self.ask(Request { width, height, operating_point, length }, stream).map_err(|_| failed())
    }

    fn ask(&mut self, request: Request, stream: &[u8]) -> Result<Picture> {
        self.to.write_all(&request.to_bytes())?;
        self.to.write_all(stream)?;
        self.to.flush()?;
        let mut head = [0; Reply::BYTES];
        self.from.read_exact(&mut head)?;
        let (reply, size) = (Reply::from_bytes(head)?, (request.width as usize, request.height as usize));
        let mut samples = Vec::new();
        let bytes = reply.bytes(size);
        samples.try_reserve_exact(bytes)?;
        (&mut self.from).take(bytes as u64).read_to_end(&mut samples)?;
        ensure!(samples.len() == bytes, "the decoder ended");
        Ok(Picture { width: size.0, height: size.1, reply, samples })
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // It has nothing to save; not to wait for it would leave it as a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed() -> anyhow::Error {
    anyhow!("damaged AVIF file: its picture can't be decoded")
}
