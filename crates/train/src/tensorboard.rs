//! TensorBoard event files: the metrics of a run as scalars over steps.
//!
//! An event file is a row of records, each `length u64 · crc u32 · data · crc u32` (little endian, TFRecord's masked CRC-32C of what
//! stands before), and each record's data is an `Event` of TensorFlow's `event.proto`: wall time (field 1, double), step (2, int64), and
//! either the file's version (3) or a summary (5) of values (1) with a tag (1) and a number (2, float).
//!
//! A run has one file. On resume, events after the resumed step are cut off it, as rows are off `metrics.jsonl`.

use crate::append::Appended;
use crate::metrics::Row;
use anyhow::Result;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// TensorBoard reads files with `tfevents` in their names.
pub const FILE_NAME: &str = "events.out.tfevents.velatura";

/// What the first record says.
const VERSION: &str = "brain.Event:2";

/// Largest event file that is read back: far more than any run writes.
const LARGEST_FILE: u64 = 4 << 30;

/// A group of parameters, and its share of the scheduled rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    pub lr_scale: f64,
}

pub struct TensorBoard {
    records: Appended,
    groups: Vec<Group>,
}

impl TensorBoard {
    /// Opens the file of a run that has done `step` steps, in `folder`.
    pub fn open(folder: &Path, step: u64, groups: Vec<Group>) -> Result<TensorBoard> {
        base::fs::create_dir(folder)?;
        let path = folder.join(FILE_NAME);
        let mut kept = Vec::new();
        if path.exists() {
            let bytes = base::fs::read(&path, LARGEST_FILE)?;
            records(&bytes).filter(|data| step_of(data).is_some_and(|at| at <= step)).for_each(|data| put_record(data, &mut kept));
        }
        if kept.is_empty() {
            put_record(&event(0, 3, VERSION.as_bytes()), &mut kept);
        }
        base::fs::write_atomic(&path, &kept)?;
        Ok(TensorBoard { records: Appended::open(&path)?, groups })
    }

    /// Adds what a step has to say: numbers that are not finite are left out.
    pub fn append(&mut self, row: &Row) -> Result<()> {
        let mut values = Vec::new();
        for (tag, number) in self.scalars(row) {
            let mut value = Vec::new();
            put_bytes(1, tag.as_bytes(), &mut value);
            put_key(2, FIXED32, &mut value);
            value.extend((number as f32).to_le_bytes());
            put_bytes(1, &value, &mut values);
        }
        let mut record = Vec::new();
        put_record(&event(row.step, 5, &values), &mut record);
        self.records.append(&record)
    }

    /// Writes the records that a full disk has not taken yet.
    pub fn flush(&mut self) -> Result<()> {
        self.records.flush()
    }

    fn scalars(&self, row: &Row) -> Vec<(String, f64)> {
        let seconds = row.seconds.data + row.seconds.compute + row.seconds.optimizer;
        let single = [
            ("loss", row.loss),
            ("validation_loss", row.validation_loss),
            ("preservation_loss", row.preservation_loss),
            ("grad_norm", row.grad_norm),
            ("loss_scale", row.loss_scale),
            ("step/overflow", row.overflow.map(|n| n as f64)),
        ];
        let single = single.into_iter().filter_map(|(tag, value)| Some((tag.to_string(), value?)));
        let rates = self.groups.iter().map(|group| (format!("lr/{}", group.name), row.lr * group.lr_scale));
        let adapted = row.adapted.iter().map(|(name, value)| (format!("adapted/{name}"), *value));
        let rest = [("step/seconds".to_string(), seconds), ("step/skipped".to_string(), row.skipped as f64)];
        single.chain(rates).chain(adapted).chain(rest).collect()
    }
}

/// An event of now, with one field beside time and step.
fn event(step: u64, field: u32, body: &[u8]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
    let mut data = Vec::new();
    put_key(1, FIXED64, &mut data);
    data.extend(now.to_le_bytes());
    put_key(2, VARINT, &mut data);
    put_varint(step, &mut data);
    put_bytes(field, body, &mut data);
    data
}

/// Wire types of protocol buffers.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

fn put_key(field: u32, wire: u32, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | wire), out);
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_key(field, BYTES, out);
    put_varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn put_record(data: &[u8], out: &mut Vec<u8>) {
    let length = (data.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked(data).to_le_bytes());
}

/// The data of all whole records: what follows a damaged one, as a crash leaves it at the end, is not read.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let size = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (data, rest) = rest.split_at_checked(size)?;
        let (data_crc, rest) = rest.split_first_chunk::<4>()?;
        bytes = rest;
        let whole = u32::from_le_bytes(*crc) == masked(length) && u32::from_le_bytes(*data_crc) == masked(data);
        whole.then_some(data)
    })
}

/// The step of an event that [`event`] wrote.
fn step_of(data: &[u8]) -> Option<u64> {
    // Key and double of the time, then the step's key.
    let rest = data.get(9..)?.strip_prefix(&[(2 << 3 | VARINT) as u8])?;
    let mut step = 0;
    for (i, byte) in rest.iter().take(10).enumerate() {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(step);
        }
    }
    None
}

/// TFRecord's mask over a CRC: a CRC of bytes that hold a CRC would be weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C (Castagnoli), bit-reversed polynomial 0x82F63B78.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |crc: u32, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Seconds;
    use std::collections::BTreeMap;

    #[test]
    fn checksums_have_their_published_values() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    fn row(step: u64) -> Row {
        Row {
            step,
            epoch: 0.5,
            loss: Some(0.25),
            validation_loss: None,
            preservation_loss: None,
            lr: 1e-4,
            adapted: BTreeMap::from([("d".to_string(), 0.5)]),
            grad_norm: None,
            files: Vec::new(),
            skipped: 0,
            loss_scale: None,
            overflow: None,
            seconds: Seconds { data: 0.5, compute: 1.0, optimizer: 0.25 },
            peak_bytes: 7,
        }
    }

    fn groups() -> Vec<Group> {
        vec![Group { name: "unet".into(), lr_scale: 1.0 }, Group { name: "text_encoder".into(), lr_scale: 0.5 }]
    }

    fn steps(folder: &Path) -> Vec<u64> {
        let bytes = std::fs::read(folder.join(FILE_NAME)).unwrap();
        records(&bytes).map(|data| step_of(data).unwrap()).collect()
    }

    #[test]
    fn a_steps_event_holds_its_scalars_and_leaves_out_what_is_not_finite() {
        let dir = tempfile::tempdir().unwrap();
        TensorBoard::open(dir.path(), 0, groups()).unwrap().append(&row(300)).unwrap();
        assert_eq!(steps(dir.path()), [0, 300]);
        let bytes = std::fs::read(dir.path().join(FILE_NAME)).unwrap();
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        let scalar = |tag: &str, value: f32| [tag.as_bytes(), &[(2 << 3 | FIXED32) as u8], value.to_le_bytes().as_slice()].concat();
        for (tag, value) in [
            ("loss", 0.25),
            ("lr/unet", 1e-4),
            ("lr/text_encoder", 5e-5),
            ("adapted/d", 0.5),
            ("step/seconds", 1.75),
            ("step/skipped", 0.0),
        ] {
            assert!(holds(&scalar(tag, value)), "{tag}");
        }
        assert!(holds(b"brain.Event:2") && !holds(b"grad_norm") && !holds(b"preservation_loss"));
    }

    #[test]
    fn resuming_cuts_later_events_and_a_torn_last_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::open(dir.path(), 0, groups()).unwrap();
        (1..=5).for_each(|step| board.append(&row(step)).unwrap());
        let path = dir.path().join(FILE_NAME);
        let torn = std::fs::read(&path).unwrap();
        std::fs::write(&path, &torn[..torn.len() - 3]).unwrap();
        assert_eq!(steps(dir.path()), [0, 1, 2, 3, 4]);
        let mut board = TensorBoard::open(dir.path(), 3, groups()).unwrap();
        board.append(&row(4)).unwrap();
        assert_eq!(steps(dir.path()), [0, 1, 2, 3, 4]);
        TensorBoard::open(dir.path(), 0, groups()).unwrap();
        assert_eq!(steps(dir.path()), [0]);
    }
}
