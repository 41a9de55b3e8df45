//! `constant`: the base rate throughout.

use super::{Curve, Entry, Point, Request, Warmup};
use anyhow::Result;
use serde_json::json;

pub(super) const ENTRY: Entry =
    Entry { name: "constant", aliases: &["constantlr"], warmup: Warmup::Never("use constant_with_warmup"), build };

/// A lowest rate of 0 says nothing, and configs as they are written out hold it.
fn build(request: Request) -> Result<Box<dyn Curve>> {
    request.hyper.only("min_lr", json!(0), "the rate does not fall")?;
    Ok(Box::new(Constant))
}

pub(super) struct Constant;

impl Curve for Constant {
    fn at(&self, _point: Point) -> f64 {
        1.0
    }
}
