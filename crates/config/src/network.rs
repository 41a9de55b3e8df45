//! `network:` the adapter that is trained.

use crate::findings::Findings;
use crate::scalar::{Flag, Number, Texts, Whole};
use crate::section::section;
use crate::{path, run};
use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::path::PathBuf;

section! {
    RawNetwork {
        /// `lora` (linear layers; convolutions if `conv` is given) or `locon` (both).
        r#type: String,
        /// Rank on linear layers.
        #[serde(alias = "rank", alias = "dim")]
        linear: Whole,
        /// Strength on linear layers is alpha / rank; default: the rank.
        #[serde(alias = "alpha")]
        linear_alpha: Number,
        /// Rank on 3×3 convolutions; 0 or absent: none.
        conv: Whole,
        /// Strength on convolutions is conv_alpha / conv; default: the rank.
        conv_alpha: Number,
        /// Share of the adapter's input that is set to zero in each step.
        dropout: Number,
        /// A LoRA file to start from.
        pretrained_lora_path: String,
        /// Only modules whose name contains one of these get an adapter.
        only_if_contains: Texts,
        /// Modules whose name contains one of these get none.
        ignore_if_contains: Texts,
        network_kwargs: RawNetworkKwargs,
        /// Of older files; modules are chosen by name.
        transformer_only: Flag,
    }
    no effect {
        lokr_full_rank: Flag => "it belongs to LoKr",
        lokr_factor: Number => "it belongs to LoKr",
        old_lokr_format: Flag => "it belongs to LoKr",
        split_multistage_loras: Flag => "it belongs to models of several stages",
        layer_offloading: Flag => "memory is planned, see the section memory",
    }
    not yet { lorm_config: "", all_layers: false, }
}

section! {
    /// Where ai-toolkit's files keep the name filters.
    RawNetworkKwargs {
        /// As `network.only_if_contains`.
        only_if_contains: Texts,
        /// As `network.ignore_if_contains`.
        ignore_if_contains: Texts,
    }
    no effect {}
    not yet { full_if_contains: "", rank_dropout: 0, module_dropout: 0, }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkType {
    Lora,
    Locon,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetworkConfig {
    pub r#type: NetworkType,
    pub linear: usize,
    pub linear_alpha: f64,
    /// Rank on 3×3 convolutions; 0: they get no adapter.
    pub conv: usize,
    pub conv_alpha: f64,
    pub dropout: f64,
    pub pretrained_lora_path: Option<PathBuf>,
    /// Only modules whose name contains one of these get an adapter (empty: all).
    pub only_if_contains: Vec<String>,
    pub ignore_if_contains: Vec<String>,
}

pub(crate) fn resolve(raw: RawNetwork, findings: &mut Findings) -> NetworkConfig {
    raw.check_foreign("network", findings);
    let kwargs = raw.network_kwargs.unwrap_or_default();
    kwargs.check_foreign("network.network_kwargs", findings);
    let kind = findings.or(kind(raw.r#type.as_deref()), NetworkType::Lora);
    let linear = findings.or(rank("network.linear", raw.linear, 16, 1), 16);
    let conv_default = if kind == NetworkType::Locon { linear as u64 } else { 0 };
    let conv = findings.or(rank("network.conv", raw.conv, conv_default, 0), conv_default as usize);
    if let (None | Some(Whole(0)), 0, Some(alpha)) = (&raw.conv, conv, raw.conv_alpha.filter(|a| a.0 != 0.0)) {
        let why = "has nothing to apply to, because network.conv is not given";
        findings.wrong(format!("network.conv_alpha: {} {why}", alpha.0));
    }
    if raw.transformer_only.is_some_and(|f| !f.0) {
        findings.notice("network.transformer_only has no effect here: modules are chosen by only_if_contains and ignore_if_contains");
    }
    let start = run::text(raw.pretrained_lora_path).map(|p| path::read("network.pretrained_lora_path", &p)).transpose();
    let conv_alpha = if conv == 0 { Ok(0.0) } else { alpha("network.conv_alpha", raw.conv_alpha, conv) };
    NetworkConfig {
        r#type: kind,
        linear,
        linear_alpha: findings.or(alpha("network.linear_alpha", raw.linear_alpha, linear), 1.0),
        conv,
        conv_alpha: findings.or(conv_alpha, 1.0),
        dropout: findings.or(dropout(raw.dropout), 0.0),
        pretrained_lora_path: findings.or(start, None),
        only_if_contains: findings.or(one_place("only_if_contains", raw.only_if_contains, kwargs.only_if_contains), Vec::new()),
        ignore_if_contains: findings.or(one_place("ignore_if_contains", raw.ignore_if_contains, kwargs.ignore_if_contains), Vec::new()),
    }
}

fn kind(name: Option<&str>) -> Result<NetworkType> {
    match name.unwrap_or("lora") {
        "lora" => Ok(NetworkType::Lora),
        "locon" => Ok(NetworkType::Locon),
        other @ ("lokr" | "loha" | "dora" | "lorm" | "fullrank") => {
            bail!("network.type: {other} is not supported yet; lora and locon are")
        }
        other => bail!("network.type: {other} is unknown; it is lora or locon"),
    }
}

fn dropout(share: Option<Number>) -> Result<f64> {
    let share = share.map_or(0.0, |d| d.0);
    ensure!((0.0..1.0).contains(&share), "network.dropout: {share} is not a share from 0 up to (not including) 1");
    Ok(share)
}

fn rank(key: &str, rank: Option<Whole>, default: u64, least: u64) -> Result<usize> {
    let rank = rank.map_or(default, |rank| rank.0);
    ensure!(rank >= least, "{key}: the rank must be {least} or more");
    ensure!(rank <= 4096, "{key}: a rank of {rank} is beyond the 4096 that any layer could use");
    Ok(rank as usize)
}

fn alpha(key: &str, alpha: Option<Number>, rank: usize) -> Result<f64> {
    let alpha = alpha.unwrap_or(Number(rank as f64));
    ensure!(alpha.0 > 0.0, "{key}: {alpha} must be more than 0, or the adapter has no effect");
    alpha.within_reason(key)
}

fn one_place(key: &str, direct: Option<Texts>, kwargs: Option<Texts>) -> Result<Vec<String>> {
    match (direct, kwargs) {
        (Some(_), Some(_)) => bail!("network.{key} and network.network_kwargs.{key} are both given; keep one"),
        (direct, kwargs) => Ok(direct.or(kwargs).map(|t| t.0).unwrap_or_default()),
    }
}
