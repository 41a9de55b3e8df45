//! What an optimizer's rule is, and THE list of those that a config can name.

mod adafactor;
mod adagrad;
mod adam;
mod adam8bit;
mod adamw;
mod adamw8bit;
mod adamw_schedulefree;
mod automagic;
mod automagic2;
mod automagic3;
mod came;
mod dadaptadam;
mod dadaptlion;
mod elsewhere;
mod factored;
mod lion;
mod lion8bit;
mod muon;
mod prodigy;
mod prodigy8bit;
mod radam;
mod sgd;

use crate::Layout;
use crate::cells::{Cells, Spec};
use crate::hyper::{Hyper, plain, unknown_name};
use crate::optimizer::Scalars;
use crate::table::{Grain, Table};
use anyhow::{Result, anyhow};
use serde_json::{Map, Value};

/// How parameters move. A rule holds settings; what it keeps between steps is in the cells and scalars that it asks for.
pub trait Rule: Send {
    /// How finely parameters may be cut.
    fn grain(&self) -> Grain {
        Grain::Chunk
    }

    /// The arrays that it keeps. [`Step::cells`] has them in this order.
    fn cells(&self) -> Vec<Spec>;

    /// The numbers that it keeps, and what they begin with.
    fn scalars(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Those of its numbers that people want to see while it trains.
    fn shown(&self) -> &'static [&'static str] {
        &[]
    }

    /// Bytes that it needs within a step.
    fn scratch_bytes(&self, _layout: &Layout) -> u64 {
        0
    }

    /// Takes those bytes.
    fn prepare(&mut self, _layout: &Layout) {}

    /// One update. Allocates nothing.
    fn step(&mut self, step: Step);

    /// Whether it trains at another point than the one to save.
    fn averages(&self) -> bool {
        false
    }

    /// Turns the trained parameters into those to save.
    fn publish(&self, _table: &Table, _cells: &[Cells], _params: &mut [f32]) {}
}

/// All that a rule works on in one step.
pub struct Step<'a> {
    /// Counted from 1.
    pub number: u64,
    /// The scheduled rate, before the groups' factors.
    pub lr: f64,
    /// The rate that the schedule shapes: lr / base_lr is the schedule's share.
    pub base_lr: f64,
    pub params: &'a mut [f32],
    pub grads: &'a [f32],
    pub table: &'a mut Table,
    pub cells: &'a mut [Cells],
    pub scalars: Scalars<'a>,
}

impl Step<'_> {
    /// What the schedule makes of the base rate now; 1 for a rate of 0, which has no shape.
    pub fn share(&self) -> f64 {
        if self.base_lr > 0.0 { self.lr / self.base_lr } else { 1.0 }
    }
}

/// The arrays of a rule that asked for `N`.
fn of<const N: usize>(cells: &mut [Cells]) -> &mut [Cells; N] {
    cells.try_into().expect("a rule is given the arrays that it lists")
}

/// Where a rate belongs that users would call usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// When the config gives none.
    pub default: f64,
    /// Below and above these the user is told.
    pub usual: [f64; 2],
}

/// One row of the list.
pub struct Entry {
    /// In configs, printed plans and saved states.
    pub name: &'static str,
    /// What other programs call it. Compared without case, `_`, `-`, and what stands before a dot.
    pub aliases: &'static [&'static str],
    pub rates: Rates,
    /// Version of its saved state.
    pub version: u32,
    pub parse: fn(&mut Hyper) -> Result<Box<dyn Rule>>,
}

/// Every optimizer that a config can name.
pub static OPTIMIZERS: &[Entry] = &[
    adamw::ENTRY,
    adam::ENTRY,
    adamw8bit::ENTRY,
    adam8bit::ENTRY,
    lion::ENTRY,
    lion8bit::ENTRY,
    sgd::ENTRY,
    sgd::NESTEROV,
    adagrad::ENTRY,
    radam::ENTRY,
    adafactor::ENTRY,
    prodigy::ENTRY,
    prodigy8bit::ENTRY,
    dadaptadam::ENTRY,
    dadaptlion::ENTRY,
    automagic::ENTRY,
    automagic2::ENTRY,
    automagic3::ENTRY,
    came::ENTRY,
    muon::ENTRY,
    adamw_schedulefree::ENTRY,
];

/// Usual rates of optimizers that find their step by themselves: lr is a factor on it.
const FACTOR: Rates = Rates { default: 1.0, usual: [0.1, 10.0] };
/// Usual rates of Adam's kind.
const ADAM: Rates = Rates { default: 1e-4, usual: [1e-7, 1e-1] };

/// An optimizer with its settings read.
pub struct Chosen {
    pub name: &'static str,
    pub version: u32,
    pub rates: Rates,
    /// The settings, defaults included, under their first names.
    pub params: Map<String, Value>,
    pub(crate) rule: Box<dyn Rule>,
}

impl Chosen {
    /// Bytes that it will hold for parameters that lie as in `layout`: state and scratch.
    pub fn held_bytes(&self, layout: &Layout) -> u64 {
        self.rule.cells().iter().map(|spec| spec.kind.bytes(layout)).sum::<u64>() + self.rule.scratch_bytes(layout)
    }

    /// Whether what it trains is not what is saved and sampled.
    pub fn averages(&self) -> bool {
        self.rule.averages()
    }
}

/// The row of that name, or an error with the list of names and the nearest.
pub fn find(name: &str) -> Result<&'static Entry> {
    let wanted = plain(name);
    let is = |known: &&str| plain(known) == wanted;
    let found = OPTIMIZERS.iter().find(|entry| is(&entry.name) || entry.aliases.iter().any(is));
    let names: Vec<&str> = OPTIMIZERS.iter().map(|entry| entry.name).collect();
    found.ok_or_else(|| match elsewhere::nearest(&wanted) {
        Some(nearest) => {
            anyhow!("optimizer {} is not one of velatura's; the nearest is {nearest} (known: {})", name.trim(), names.join(", "))
        }
        None => unknown_name("optimizer", &name.trim().to_lowercase(), &names),
    })
}

/// The optimizer of that name with the settings of `optimizer_params`.
pub fn choose(name: &str, params: &Map<String, Value>) -> Result<Chosen> {
    let entry = find(name)?;
    let owner = format!("optimizer {}", entry.name);
    let mut hyper = Hyper::new(&owner, params);
    let rule = (entry.parse)(&mut hyper)?;
    Ok(Chosen { name: entry.name, version: entry.version, rates: entry.rates, params: hyper.finish()?, rule })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_users_write_them_and_unknown_ones_refused_with_the_nearest() {
        for (written, name) in [
            ("AdamW", "adamw"),
            ("adamw_8bit", "adamw8bit"),
            ("adamw8", "adamw8bit"),
            ("PagedAdamW8bit", "adamw8bit"),
            ("bitsandbytes.optim.Lion8bit", "lion8bit"),
            ("prodigyopt", "prodigy"),
            ("dadaptation", "dadaptadam"),
            ("DAdaptLion", "dadaptlion"),
            ("SGDNesterov", "sgdnesterov"),
            ("AdamWScheduleFree", "adamw_schedulefree"),
            ("transformers.optimization.Adafactor", "adafactor"),
            ("automagic_3", "automagic3"),
            (" CAME ", "came"),
        ] {
            assert_eq!(find(written).map(|entry| entry.name).unwrap(), name, "{written}");
        }
        let error = find("adanw").err().unwrap().to_string();
        assert!(error.contains("did you mean adamw?") && error.contains("prodigy"), "{error}");
        assert!(find("").is_err());
        let error = find("torch_optimizer.DAdaptSGD").err().unwrap().to_string();
        assert!(error.contains("DAdaptSGD is not") && error.contains("nearest is dadaptadam"), "{error}");
    }

    #[test]
    fn no_two_rows_share_a_name() {
        let names = OPTIMIZERS.iter().flat_map(|entry| entry.aliases.iter().chain([&entry.name]).map(|name| plain(name)));
        let mut names: Vec<String> = names.collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_optimizer_reads_its_own_settings_back_and_refuses_foreign_ones() {
        for entry in OPTIMIZERS {
            let first = choose(entry.name, &Map::new()).unwrap().params;
            assert_eq!(choose(entry.name, &first).unwrap().params, first, "{}", entry.name);
            let wrong = Map::from_iter([("no_such_setting".to_string(), 1.into())]);
            let error = choose(entry.name, &wrong).err().unwrap().to_string();
            assert!(error.contains("no_such_setting") && error.contains("known: "), "{error}");
            for (key, value) in &first {
                let bad = Map::from_iter([(key.clone(), serde_json::json!({"not": "a value"}))]);
                assert!(choose(entry.name, &bad).err().unwrap().to_string().contains(key.as_str()), "{} {key} {value}", entry.name);
            }
        }
    }
}
