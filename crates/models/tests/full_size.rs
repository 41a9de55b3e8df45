//! The full-size models: built from the published configs, their weights have exactly the names and shapes of the real checkpoints
//! (the lists of the weights crate, made by diffusers and transformers), and the shapes alone give the same configs.
#![allow(clippy::unwrap_used)]

use base::{DType, Shape};
use graph::{Builder, Recompute};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use velatura_models::{AdapterSpec, Adapters, ClipConfig, Net, Shapes, StableDiffusion, UnetConfig, VaeConfig, clip, is_quantizable, unet};
use weights::Family;

/// Canonical name → shape, from a list of original and canonical names.
fn listed(name: &str) -> BTreeMap<String, Shape> {
    let path = format!("{}/../weights/tests/key_lists/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let ours = text.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once(" = ")).map(|(_, ours)| ours).filter(|o| *o != "-");
    ours.flat_map(|o| o.split(" + "))
        .map(|part| {
            let (name, dims) = part.split_once(' ').unwrap();
            (name.to_owned(), Shape(dims.split('x').map(|d| d.parse().unwrap()).collect()))
        })
        .collect()
}

fn model(family: Family) -> StableDiffusion {
    let second = family == Family::Sd2;
    let heads = if second { json!([5, 10, 20, 20]) } else { json!(8) };
    let width = if second { 1024 } else { 768 };
    let unet = json!({
        "act_fn": "silu", "attention_head_dim": heads, "block_out_channels": [320, 640, 1280, 1280], "cross_attention_dim": width,
        "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
        "in_channels": 4, "out_channels": 4, "layers_per_block": 2, "norm_eps": 1e-5, "norm_num_groups": 32, "use_linear_projection": second
    });
    let blocks = |name: &str| Value::from(vec![name; 4]);
    let vae = json!({
        "act_fn": "silu", "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 4,
        "down_block_types": blocks("DownEncoderBlock2D"), "up_block_types": blocks("UpDecoderBlock2D"), "norm_num_groups": 32
    });
    let text_encoder = json!({
        "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": if second { 23 } else { 12 },
        "num_attention_heads": width / 64, "hidden_act": if second { "gelu" } else { "quick_gelu" }, "vocab_size": 49408
    });
    StableDiffusion {
        family,
        unet: UnetConfig::from_json(&unet).unwrap(),
        vae: VaeConfig::from_json(&vae).unwrap(),
        text_encoder: ClipConfig::from_json(&text_encoder).unwrap(),
    }
}

#[test]
fn weights_of_the_full_size_models_have_the_names_and_shapes_of_real_checkpoints() {
    for (list, family, unet_parameters) in [("sd15", Family::Sd1, 859_520_964), ("sd21", Family::Sd2, 865_910_724)] {
        let (model, mut wanted) = (model(family), listed(list));
        let shapes = wanted.clone();
        let shapes = Shapes::new(list, |name| shapes.get(name).cloned());
        let mut unet = 0;
        for graph in model.graphs() {
            shapes.check(&graph).unwrap();
            for (name, id) in graph.weights() {
                unet += if name.starts_with("unet.") { graph.meta(id).shape.elements() } else { 0 };
                assert!(wanted.remove(name).is_some(), "{name} is used twice");
            }
        }
        assert!(wanted.is_empty(), "{list}: not used: {:?}", wanted.keys().collect::<Vec<_>>());
        assert_eq!(unet, unet_parameters);
    }
}

#[test]
fn shapes_alone_give_the_published_configs() {
    for (list, family) in [("sd15", Family::Sd1), ("sd21", Family::Sd2)] {
        let (model, tensors) = (model(family), listed(list));
        let shapes = Shapes::new(list, |name| tensors.get(name).cloned());
        assert_eq!(UnetConfig::from_shapes(&shapes, family).unwrap(), model.unet);
        assert_eq!(VaeConfig::from_shapes(&shapes).unwrap(), model.vae);
        assert_eq!(ClipConfig::from_shapes(&shapes, family).unwrap(), model.text_encoder);
    }
}

#[test]
fn modules_have_the_weights_of_real_checkpoints_and_the_usual_number_gets_a_lora() {
    for (list, family) in [("sd15", Family::Sd1), ("sd21", Family::Sd2)] {
        let (model, tensors) = (model(family), listed(list));
        for module in model.all_modules() {
            assert_eq!(module.weight_file_shape(), tensors[&format!("{}.weight", module.name)], "{}", module.name);
        }
        // sd-scripts: "create LoRA for U-Net: 192 modules", and 6 for each of the text encoder's layers.
        let spec = AdapterSpec { text_encoder: true, ..Default::default() };
        let adapters = Adapters::resolve(&spec, &model.modules(1).unwrap()).unwrap();
        assert_eq!(adapters.of_component("unet").len(), 192);
        assert_eq!(adapters.of_component("text_encoder").len(), 6 * model.text_encoder.layers);
    }
}

/// Text encoder and UNet in one training graph, in bf16 with f16 weights, dropout and adapters on everything.
#[test]
fn a_training_graph_of_full_size_is_sound_with_any_segments_recomputed() {
    for family in [Family::Sd1, Family::Sd2] {
        let model = model(family);
        let spec = AdapterSpec { conv_rank: Some(4), dropout: 0.1, text_encoder: true, ..Default::default() };
        let adapters = Adapters::resolve(&spec, &model.modules(2).unwrap()).unwrap();
        let mut b = Builder::new(DType::BF16, Box::new(|_| DType::F16));
        let mut net = Net::new(&mut b, &adapters);
        let ids = clip::ids_input(&mut net, 2, 77);
        let mut inputs = unet::inputs(&mut net, &model.unet, 2, [64, 48], 77);
        inputs.context = clip::forward(&mut net, &model.text_encoder, ids, 2);
        let prediction = unet::forward(&mut net, &model.unet, inputs);
        let target = b.input("target", [2, 64, 48, 4], DType::F32);
        let weight = b.input("weight", [2], DType::F32);
        let [loss, _] = b.mse(prediction, target, weight);
        b.output("loss", loss);
        let forward = b.finish();
        assert!(forward.inputs().any(|(name, _)| name == velatura_models::layers::DROPOUT_SEED));
        let segments: Vec<&str> = forward.segments.iter().map(|s| s.name.as_str()).collect();
        // 22 resnets and 16 transformers of the UNet, and every layer of the text encoder but the last.
        assert_eq!(segments.len(), 22 + 16 + model.text_encoder.layers - 1);
        assert!(segments.contains(&"unet.up_blocks.1.attentions.2.transformer_blocks.0"));
        for recompute in [Recompute::none(), Recompute::all(&forward), Recompute::matching(&forward, &["resnets".into()])] {
            let graph = graph::differentiate(forward.clone(), loss, &recompute);
            graph::verify::verify(&graph).unwrap();
            assert_eq!(graph.gradients.len(), 2 * adapters.len());
        }
    }
}

#[test]
fn all_but_a_few_numbers_may_be_quantized_and_only_layers_are() {
    for family in [Family::Sd1, Family::Sd2] {
        let model = model(family);
        let layers: Vec<String> = model.all_modules().into_iter().map(|module| format!("{}.weight", module.name)).collect();
        let (mut few, mut all) = (0, 0);
        for graph in model.graphs() {
            for (name, id) in graph.weights().filter(|(name, _)| !name.starts_with("vae.")) {
                let shape = &graph.meta(id).shape;
                all += shape.elements();
                if shape.rank() > 1 && is_quantizable(name) {
                    assert!(layers.iter().any(|layer| layer == name), "{name} is no layer's");
                } else if !name.contains(".embeddings.") {
                    few += shape.elements();
                }
            }
            let vae = graph.weights().filter(|(name, _)| name.starts_with("vae."));
            vae.for_each(|(name, _)| assert!(!is_quantizable(name), "{name}"));
        }
        // 2.1 million of the time embedding, 0.6 of norms and biases.
        assert!(few > 0 && few * 300 < all, "{few} of {all} numbers stay as they are");
    }
    for whole in ["unet.conv_in.weight", "unet.conv_out.weight", "unet.time_embedding.linear_2.weight"] {
        assert!(!is_quantizable(whole), "{whole}");
    }
    assert!(!is_quantizable("text_encoder.text_model.embeddings.token_embedding.weight"));
}
