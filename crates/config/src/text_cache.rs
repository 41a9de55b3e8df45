//! `cache_text_embeddings`: whether each caption is encoded once.

use crate::dataset::DatasetConfig;
use crate::train::TrainConfig;
use anyhow::{Result, bail};

/// Settles whether text embeddings are cached: as asked, or by itself where nothing stands against it.
///
/// `train_wish` is `train.cache_text_embeddings`, `dataset_wishes` the same key of each dataset.
pub(crate) fn resolve(
    train: &mut TrainConfig,
    train_wish: Option<bool>,
    dataset_wishes: &[Option<bool>],
    datasets: &[DatasetConfig],
) -> Result<()> {
    let wishes: Vec<(String, bool)> = std::iter::once(("train".to_string(), train_wish))
        .chain(dataset_wishes.iter().enumerate().map(|(i, wish)| (format!("datasets[{i}]"), *wish)))
        .filter_map(|(section, wish)| Some((format!("{section}.cache_text_embeddings"), wish?)))
        .collect();
    let obstacle = obstacle(train.train_text_encoder, datasets);
    let (on, off) = (wishes.iter().find(|w| w.1), wishes.iter().find(|w| !w.1));
    match (on, off, obstacle) {
        (Some((on, _)), Some((off, _)), _) => bail!("{on}: true contradicts {off}: false; embeddings are cached for all datasets or none"),
        (Some((on, _)), _, Some(obstacle)) => bail!("{on}: true and {obstacle} exclude each other: a cached embedding can't change"),
        (Some(_), None, None) => train.cache_text_embeddings = true,
        (None, Some(_), _) => train.cache_text_embeddings = false,
        (None, None, obstacle) => train.cache_text_embeddings = obstacle.is_none(),
    }
    Ok(())
}

/// The setting that makes a text's embedding differ from step to step. Caption dropout doesn't: the empty text is cached too.
fn obstacle(train_text_encoder: bool, datasets: &[DatasetConfig]) -> Option<String> {
    if train_text_encoder {
        return Some("train.train_text_encoder: true".to_string());
    }
    datasets.iter().enumerate().find_map(|(i, d)| Some(format!("datasets[{i}].{}", d.caption.random_key()?)))
}
