use super::*;
use crate::safetensors::{Entry, write};
use std::borrow::Cow;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets")
}

/// Writes zeros under the given names and shapes, as halves.
fn write_zeros(path: &Path, tensors: &[(&str, &[usize])]) {
    let entry = |(name, shape): &(&str, &[usize])| {
        let shape = Shape::new(shape);
        let bytes = Cow::Owned(vec![0; shape.elements() * 2]);
        Entry { name: (*name).to_owned(), dtype: DType::F16, shape, bytes }
    };
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(path, &tensors.iter().map(entry).collect::<Vec<_>>(), &BTreeMap::new()).unwrap();
}

#[test]
fn the_tiny_model_is_the_same_from_its_folder_and_from_its_single_file() {
    let folder = Checkpoint::open(&assets().join("tiny-emoji")).unwrap();
    let single = Checkpoint::open(&assets().join("tiny-emoji.safetensors")).unwrap();
    assert_eq!((folder.layout(), single.layout()), (Layout::DiffusersFolder, Layout::SingleFile));
    assert_eq!((folder.family(), single.family()), (Family::Sd1, Family::Sd1));
    assert!(folder.unused().is_empty() && single.unused().is_empty());
    assert_eq!(folder.names().collect::<Vec<_>>(), single.names().collect::<Vec<_>>());
    assert_eq!(folder.names().count(), 550);
    for name in folder.names() {
        assert_eq!(folder.tensor(name).unwrap(), single.tensor(name).unwrap(), "{name}");
        assert_eq!(folder.info(name), single.info(name), "{name}");
    }
    for component in COMPONENTS {
        assert_eq!(folder.identity(component).unwrap(), single.identity(component).unwrap());
        assert_eq!(folder.config(component), single.config(component), "the folder beside the file lends its configs");
    }
    assert_ne!(folder.identity("vae").unwrap(), folder.identity("unet").unwrap());
    assert_eq!(folder.prediction_type(), Some("epsilon"));
    assert!(folder.tokenizer_dir().unwrap().join("merges.txt").is_file());
    folder.ensure_supported().unwrap();
    single.ensure_supported().unwrap();
}

#[test]
fn a_missing_tensor_is_named_with_the_file_and_the_nearest_one() {
    let folder = Checkpoint::open(&assets().join("tiny-emoji")).unwrap();
    let error = folder.tensor("unet.conv_in.wight").unwrap_err().to_string();
    assert!(
        error.contains("tiny-emoji") && error.contains("unet.conv_in.wight") && error.contains("nearest is unet.conv_in.weight"),
        "{error}"
    );
}

#[test]
fn paths_inside_a_diffusers_folder_are_answered_with_the_folder() {
    let model = assets().join("tiny-emoji");
    for inside in ["unet/diffusion_pytorch_model.safetensors", "vae", "text_encoder/model.safetensors"] {
        let error = format!("{:#}", Checkpoint::open(&model.join(inside)).unwrap_err());
        assert!(error.contains("one component") && error.contains("give the folder"), "{error}");
    }
    assert_eq!(Checkpoint::open(&model.join("model_index.json")).unwrap().layout(), Layout::DiffusersFolder);
}

#[test]
fn open_clip_and_linear_projections_are_sd2_and_the_fused_projection_is_split_by_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sd2.safetensors");
    let width = 4;
    let fused: Vec<f32> = (0..3 * width * width).map(|v| v as f32).collect();
    let names = |layer: usize| format!("cond_stage_model.model.transformer.resblocks.{layer}.attn.in_proj_weight");
    let tensor = |name: String, shape: &[usize], values: &[f32]| Entry {
        name,
        dtype: DType::F32,
        shape: Shape::new(shape),
        bytes: Cow::Owned(base::dtype::from_f32(DType::F32, values).unwrap()),
    };
    let entries = [
        tensor(names(0), &[3 * width, width], &fused),
        tensor(names(1), &[3 * width, width], &fused),
        tensor("model.diffusion_model.input_blocks.0.0.weight".to_owned(), &[8, 4, 3, 3], &[0.0; 288]),
        tensor("model.diffusion_model.input_blocks.1.1.proj_in.weight".to_owned(), &[8, 8], &[0.0; 64]),
        tensor("first_stage_model.decoder.mid.attn_1.q.weight".to_owned(), &[2, 2, 1, 1], &[0.0; 4]),
        tensor("alphas_cumprod".to_owned(), &[1], &[0.0]),
        tensor("something.else".to_owned(), &[1], &[0.0]),
    ];
    write(&path, &entries, &BTreeMap::from([("modelspec.prediction_type".to_owned(), "v".to_owned())])).unwrap();
    let model = Checkpoint::open(&path).unwrap();
    assert_eq!(model.family(), Family::Sd2);
    assert_eq!(model.unused(), ["something.else"]);
    assert_eq!(model.prediction_type(), Some("v_prediction"));
    for (n, part) in ["q_proj", "k_proj", "v_proj"].into_iter().enumerate() {
        let tensor = model.tensor(&format!("text_encoder.text_model.encoder.layers.0.self_attn.{part}.weight")).unwrap();
        assert_eq!(tensor.shape, Shape::from([width, width]));
        assert_eq!(tensor.to_f32().unwrap(), fused[n * width * width..][..width * width]);
    }
    assert!(model.component_names("text_encoder").all(|name| !name.contains("layers.1.")), "the last block is not used");
    assert_eq!(model.info("vae.decoder.mid_block.attentions.0.to_q.weight").unwrap().1, Shape::from([2, 2]));
}

#[test]
fn shards_are_joined_and_their_names_are_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let unet = dir.path().join("unet");
    write_zeros(&unet.join("diffusion_pytorch_model-00001-of-00002.safetensors"), &[("conv_in.weight", &[8, 4, 3, 3])]);
    write_zeros(
        &unet.join("diffusion_pytorch_model-00002-of-00002.safetensors"),
        &[("down_blocks.0.attentions.0.proj_in.weight", &[8, 8]), ("conv_out.bias", &[4])],
    );
    write_zeros(&dir.path().join("vae/diffusion_pytorch_model.fp16.safetensors"), &[("quant_conv.weight", &[8, 8, 1, 1])]);
    write_zeros(&dir.path().join("text_encoder/model.safetensors"), &[("text_model.final_layer_norm.weight", &[8])]);
    let index = unet.join("diffusion_pytorch_model.safetensors.index.json");
    let map = |second: &str| {
        let first = "diffusion_pytorch_model-00001-of-00002.safetensors";
        let json = serde_json::json!({ "weight_map": { "conv_in.weight": first, "conv_out.bias": second } });
        std::fs::write(&index, json.to_string()).unwrap();
    };
    map("diffusion_pytorch_model-00002-of-00002.safetensors");
    let model = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(model.family(), Family::Sd2);
    assert_eq!(model.component_names("unet").count(), 3);
    map("../../secret.safetensors");
    assert!(format!("{:#}", Checkpoint::open(dir.path()).unwrap_err()).contains("no plain file name"));
    map("diffusion_pytorch_model-00003-of-00003.safetensors");
    assert!(format!("{:#}", Checkpoint::open(dir.path()).unwrap_err()).contains("which is not there"));
}

#[test]
fn other_kinds_of_files_are_recognised_and_refused_in_a_sentence() {
    type Case<'a> = (&'a [(&'a str, &'a [usize])], Family, &'a str);
    let cases: &[Case] = &[
        (
            &[
                ("conditioner.embedders.0.transformer.text_model.final_layer_norm.weight", &[768]),
                ("model.diffusion_model.label_emb.0.0.bias", &[8]),
            ],
            Family::Sdxl,
            "an SDXL checkpoint; this version trains SD 1.x and 2.x",
        ),
        (&[("model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight", &[8, 8])], Family::Sd3, "an SD 3 checkpoint"),
        (
            &[("double_blocks.0.img_attn.qkv.weight", &[8, 8]), ("single_blocks.0.linear1.weight", &[8, 8])],
            Family::Flux,
            "a FLUX checkpoint",
        ),
        (&[("lora_unet_mid_block_attentions_0_proj_in.lora_down.weight", &[4, 8])], Family::Lora, "a LoRA, not a base model"),
        (&[("lora_unet_mid_block_attentions_0_proj_in.lokr_w1", &[4, 8])], Family::OtherAdapter, "LoKr"),
        (&[("encoder.conv_in.weight", &[8, 3, 3, 3]), ("decoder.conv_in.weight", &[8, 4, 3, 3])], Family::Vae, "a VAE alone"),
        (&[("text_model.final_layer_norm.weight", &[8])], Family::TextEncoder, "a text encoder alone"),
        (&[("down_blocks.0.resnets.0.conv1.weight", &[8, 8, 3, 3])], Family::Unet, "a UNet alone"),
        (&[("emb_params", &[2, 768])], Family::TextualInversion, "textual-inversion"),
        (
            &[("model.diffusion_model.input_blocks.0.0.weight", &[8, 9, 3, 3]), ("first_stage_model.quant_conv.bias", &[8])],
            Family::Conditioned,
            "inpainting",
        ),
        (&[("a", &[2, 2, 2]), ("b", &[2])], Family::Unknown, "no model known here"),
        (
            &[("model.diffusion_model.input_blocks.0.0.weight", &[8, 4, 3, 3]), ("first_stage_model.quant_conv.bias", &[8])],
            Family::Sd1,
            "has no tensor of the text_encoder",
        ),
    ];
    for (tensors, family, sentence) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        write_zeros(&path, tensors);
        let model = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(model.family(), *family);
        let error = model.ensure_supported().unwrap_err().to_string();
        assert!(error.contains("x.safetensors") && error.contains(sentence) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn folders_that_are_no_model_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let error = |path: &Path| format!("{:#}", Checkpoint::open(path).unwrap_err());
    assert!(error(dir.path()).contains("neither a diffusers model"));
    assert!(error(&dir.path().join("nowhere")).contains("can't open the model"));
    std::fs::write(dir.path().join("v1-5.ckpt"), b"PK\x03\x04").unwrap();
    assert!(error(dir.path()).contains("never unpickled"));
    write_zeros(&dir.path().join("a.safetensors"), &[("a", &[1])]);
    write_zeros(&dir.path().join("b.safetensors"), &[("a", &[1])]);
    assert!(error(dir.path()).contains("2 safetensors files"));
    std::fs::create_dir(dir.path().join("unet")).unwrap();
    std::fs::write(dir.path().join("unet/diffusion_pytorch_model.bin"), b"PK\x03\x04").unwrap();
    assert!(error(dir.path()).contains("diffusion_pytorch_model.bin, a PyTorch pickle"));
    write_zeros(&dir.path().join("unet/diffusion_pytorch_model.safetensors"), &[("conv_in.weight", &[8, 4, 3, 3])]);
    assert!(error(dir.path()).contains("has no vae/ folder"));
}
