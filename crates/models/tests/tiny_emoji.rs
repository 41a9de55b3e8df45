//! The demo's base model: folder and single file open with the same code and are the same model.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use velatura_models::{ClipTokenizer, Shapes, StableDiffusion, UnetConfig, VaeConfig};
use weights::{Checkpoint, Family};

fn open(name: &str) -> (Checkpoint, StableDiffusion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets").join(name);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let model = StableDiffusion::of_checkpoint(&checkpoint).unwrap();
    (checkpoint, model)
}

#[test]
fn folder_and_single_file_are_the_same_model() {
    let (folder, model) = open("tiny-emoji");
    let (_, same) = open("tiny-emoji.safetensors");
    assert_eq!(model, same);
    assert!(model.unknown_keys().is_empty(), "{:?}", model.unknown_keys());
    assert_eq!((model.family, model.vae.factor(), model.text_encoder.max_positions), (Family::Sd1, 4, 32));
    let shapes = Shapes::of_checkpoint(&folder);
    assert_eq!(UnetConfig::from_shapes(&shapes, Family::Sd1).unwrap(), model.unet);
    assert_eq!(VaeConfig::from_shapes(&shapes).unwrap(), model.vae);
    ClipTokenizer::from_dir(&folder.tokenizer_dir().unwrap(), &model.text_encoder).unwrap();
}

#[test]
fn a_tensor_of_another_shape_is_named() {
    let (_, model) = open("tiny-emoji");
    let shapes = Shapes::new("broken.safetensors", |name| (name != "unet.conv_in.bias").then(|| base::Shape::from([1])));
    let message = model.graphs().iter().find_map(|g| shapes.check(g).err()).unwrap().to_string();
    assert!(message.contains("broken.safetensors") && message.contains("unet."), "{message}");
}
