//! `network:` the adapter that is trained.

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
        lokr_full_rank: "it belongs to LoKr",
        lokr_factor: "it belongs to LoKr",
        old_lokr_format: "it belongs to LoKr",
        split_multistage_loras: "it belongs to models of several stages",
        layer_offloading: "memory is planned, see the section memory",
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

pub(crate) fn resolve(raw: RawNetwork, notices: &mut Vec<String>) -> Result<NetworkConfig> {
    raw.check_foreign("network", notices)?;
    let kwargs = raw.network_kwargs.unwrap_or_default();
    kwargs.check_foreign("network.network_kwargs", notices)?;
    let kind = match raw.r#type.as_deref().unwrap_or("lora") {
        "lora" => NetworkType::Lora,
        "locon" => NetworkType::Locon,
        other @ ("lokr" | "loha" | "dora" | "lorm" | "fullrank") => {
            bail!("network.type: {other} is not supported yet; lora and locon are")
        }
        other => bail!("network.type: {other} is unknown; it is lora or locon"),
    };
    let linear = rank("network.linear", raw.linear.map_or(16, |r| r.0))?;
    ensure!(linear > 0, "network.linear: the rank must be 1 or more");
    let conv_default = if kind == NetworkType::Locon { linear as u64 } else { 0 };
    let conv = rank("network.conv", raw.conv.map_or(conv_default, |r| r.0))?;
    if let (0, Some(alpha)) = (conv, raw.conv_alpha.filter(|a| a.0 != 0.0)) {
        bail!("network.conv_alpha: {} has nothing to apply to, because network.conv is not given", alpha.0);
    }
    let dropout = raw.dropout.map_or(0.0, |d| d.0);
    ensure!((0.0..1.0).contains(&dropout), "network.dropout: {dropout} is not a share from 0 up to (not including) 1");
    if raw.transformer_only.is_some_and(|f| !f.0) {
        notices.push("network.transformer_only has no effect here: modules are chosen by only_if_contains and ignore_if_contains".into());
    }
    Ok(NetworkConfig {
        r#type: kind,
        linear,
        linear_alpha: alpha("network.linear_alpha", raw.linear_alpha, linear)?,
        conv,
        conv_alpha: if conv == 0 { 0.0 } else { alpha("network.conv_alpha", raw.conv_alpha, conv)? },
        dropout,
        pretrained_lora_path: run::text(raw.pretrained_lora_path).map(|p| path::read("network.pretrained_lora_path", &p)).transpose()?,
        only_if_contains: one_place("only_if_contains", raw.only_if_contains, kwargs.only_if_contains)?,
        ignore_if_contains: one_place("ignore_if_contains", raw.ignore_if_contains, kwargs.ignore_if_contains)?,
    })
}

fn rank(key: &str, rank: u64) -> Result<usize> {
    ensure!(rank <= 4096, "{key}: a rank of {rank} is beyond the 4096 that any layer could use");
    Ok(rank as usize)
}

fn alpha(key: &str, alpha: Option<Number>, rank: usize) -> Result<f64> {
    let alpha = alpha.map_or(rank as f64, |a| a.0);
    ensure!(alpha > 0.0, "{key}: {alpha} must be more than 0, or the adapter has no effect");
    Ok(alpha)
}

fn one_place(key: &str, direct: Option<Texts>, kwargs: Option<Texts>) -> Result<Vec<String>> {
    match (direct, kwargs) {
        (Some(_), Some(_)) => bail!("network.{key} and network.network_kwargs.{key} are both given; keep one"),
        (direct, kwargs) => Ok(direct.or(kwargs).map(|t| t.0).unwrap_or_default()),
    }
}
