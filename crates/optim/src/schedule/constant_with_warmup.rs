//! `constant_with_warmup`: rises to the base rate and stays there. 1000 warm-up steps unless given, ai-toolkit's default.

use super::constant::Constant;
use super::{Curve, Entry, Request, Warmup};
use anyhow::Result;
use serde_json::json;

pub(super) const ENTRY: Entry = Entry { name: "constant_with_warmup", aliases: &[], warmup: Warmup::Steps(1000), build };

fn build(request: Request) -> Result<Box<dyn Curve>> {
    request.hyper.only("min_lr", json!(0), "the rate does not fall")?;
    Ok(Box::new(Constant))
}
