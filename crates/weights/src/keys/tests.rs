use super::*;
use std::collections::BTreeSet;

/// One line of a stored key list: file key, its shape, and the canonical names that it holds (none: not part of the model).
struct Line<'a> {
    key: &'a str,
    ours: Vec<&'a str>,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let parse = |line| {
        let (key, ours) = str::split_once(line, " = ").unwrap();
        let first = |part: &str| -> Option<usize> { part.find(' ') };
        let name = |part| -> &str { &str::trim(part)[..first(str::trim(part)).unwrap()] };
        Line { key: name(key), ours: if ours == "-" { Vec::new() } else { ours.split('+').map(name).collect() } }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

const SD15: &str = include_str!("../../tests/key_lists/sd15.txt");
const SD21: &str = include_str!("../../tests/key_lists/sd21.txt");

#[test]
fn every_key_of_the_real_checkpoints_has_its_diffusers_name_and_back() {
    for list in [SD15, SD21] {
        let lines = lines(list);
        let blocks = Blocks::of_original(lines.iter().map(|line| line.key));
        let names = Names::new(original_rows(&blocks), blocks.clone());
        let mut seen = BTreeSet::new();
        for line in &lines {
            let Meaning::Tensors(found) = names.meaning(line.key) else {
                assert!(line.ours.is_empty(), "{} is taken for no tensor", line.key);
                assert_eq!(names.meaning(line.key), Meaning::Ignored, "{}", line.key);
                continue;
            };
            assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), line.ours, "{}", line.key);
            for (name, transform) in found {
                assert_eq!(names.source(&name), Some((line.key.to_owned(), transform)));
                assert!(seen.insert(name.clone()), "{name} comes twice");
            }
        }
        let canonical = Blocks::of_canonical(seen.iter().map(String::as_str));
        assert_eq!(Blocks { open_clip_layers: blocks.open_clip_layers, ..canonical }, blocks, "both layouts tell the same of the model");
    }
}

#[test]
fn diffusers_names_are_their_own_canonical_names() {
    let names = Names::new(diffusers_rows(), Blocks::default());
    for line in [SD15, SD21].into_iter().flat_map(lines) {
        for ours in line.ours {
            let Meaning::Tensors(found) = names.meaning(ours) else { panic!("{ours} is unknown") };
            assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [ours]);
        }
    }
}

#[test]
fn older_diffusers_names_and_missing_prefixes_are_understood() {
    let names = Names::new(diffusers_rows(), Blocks::default());
    let ours = |key: &str| match names.meaning(key) {
        Meaning::Tensors(found) => found[0].0.clone(),
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(ours("vae.encoder.mid_block.attentions.0.query.weight"), "vae.encoder.mid_block.attentions.0.to_q.weight");
    assert_eq!(ours("vae.decoder.mid_block.attentions.0.proj_attn.bias"), "vae.decoder.mid_block.attentions.0.to_out.0.bias");
    assert_eq!(ours("text_encoder.encoder.layers.3.mlp.fc1.bias"), "text_encoder.text_model.encoder.layers.3.mlp.fc1.bias");
    let names = Names::new(original_rows(&Blocks::default()), Blocks::default());
    let key = "cond_stage_model.transformer.embeddings.token_embedding.weight";
    let Meaning::Tensors(found) = names.meaning(key) else { panic!("{key} is unknown") };
    assert_eq!(found[0].0, "text_encoder.text_model.embeddings.token_embedding.weight");
}

#[test]
fn near_misses_match_nothing() {
    let blocks = Blocks { layers: 2, vae_levels: 4, ..Blocks::default() };
    let names = Names::new(original_rows(&blocks), blocks);
    for key in [
        "",
        "model.diffusion_model.input_blocks.01.0.in_layers.0.weight",
        "model.diffusion_model.input_blocks.99999999999999999999.0.in_layers.0.weight",
        "model.diffusion_model.input_blocks.3.0.in_layers.0.weight",
        "model.diffusion_model.input_blocks.1.0.in_layers.0.weight.more",
        "model.diffusion_model.input_blocks..0.in_layers.0.weight",
        "model.diffusion_model.output_blocks.2.2.conv.weight",
        "first_stage_model.decoder.up.4.block.0.conv1.weight",
        "model.diffusion_model.é",
    ] {
        assert_eq!(names.meaning(key), Meaning::Unknown, "{key}");
    }
}

#[test]
fn no_row_shadows_another() {
    for open_clip_layers in [None, Some(24)] {
        let rows = original_rows(&Blocks { open_clip_layers, ..Blocks::default() });
        for (number, row) in rows.iter().enumerate() {
            let twin = rows[..number].iter().find(|other| other.ours == row.ours && other.source == row.source);
            assert!(twin.is_none(), "{row:?} comes twice");
        }
    }
}
