use super::*;
use crate::safetensors::{self, Entry, File};
use base::{DType, Rng};
use std::borrow::Cow;
use std::path::PathBuf;

fn shapes() -> Vec<ModuleShape> {
    let module = |name: &str, input, output, kernel| ModuleShape { name: name.to_owned(), input, output, kernel };
    vec![
        module("text_encoder.text_model.encoder.layers.11.self_attn.q_proj", 8, 8, None),
        module("text_encoder.text_model.encoder.layers.0.mlp.fc1", 8, 16, None),
        module("unet.down_blocks.0.attentions.1.proj_in", 6, 6, Some([1, 1])),
        module("unet.down_blocks.0.attentions.1.transformer_blocks.0.attn2.to_out.0", 6, 6, None),
        module("unet.down_blocks.0.downsamplers.0.conv", 6, 6, Some([3, 3])),
        module("unet.mid_block.resnets.1.time_emb_proj", 5, 6, None),
        module("unet.up_blocks.2.attentions.0.transformer_blocks.0.ff.net.0.proj", 6, 48, None),
        module("unet.up_blocks.2.resnets.2.conv_shortcut", 12, 6, Some([1, 1])),
    ]
}

fn sample(rank: usize, alpha: f32) -> LoraFile {
    let mut rng = Rng::new(5, "lora", &[]);
    let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.normal()).collect() };
    let modules = shapes().into_iter().map(|shape| {
        let taps = shape.kernel.map(|[a, b]| a * b).unwrap_or(1);
        let (down, up) = (values(rank * taps * shape.input), values(shape.output * rank));
        LoraModule::from_memory(&shape, rank, alpha, &down, &up).unwrap()
    });
    let mut modules: Vec<LoraModule> = modules.collect();
    modules.sort_by(|a, b| a.module.cmp(&b.module));
    LoraFile { modules, metadata: BTreeMap::from([("ss_network_dim".to_owned(), rank.to_string())]) }
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("a.safetensors")
    }
    /// Writes tensors of ones with the given keys and shapes, and reads them as a LoRA.
    fn read(&self, tensors: &[(&str, &[usize])], metadata: &[(&str, &str)]) -> Result<LoraFile> {
        let entry = |(name, shape): &(&str, &[usize])| {
            let shape = Shape::new(shape);
            let bytes = base::dtype::from_f32(DType::F16, &vec![1.0; shape.elements()]).unwrap();
            Entry { name: (*name).to_owned(), dtype: DType::F16, shape, bytes: Cow::Owned(bytes) }
        };
        let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        safetensors::write(&self.path(), &tensors.iter().map(entry).collect::<Vec<_>>(), &metadata)?;
        read(&self.path())
    }
    fn error(&self, tensors: &[(&str, &[usize])]) -> String {
        format!("{:#}", self.read(tensors, &[]).unwrap_err())
    }
}

/// ΔW of each module, the product that must survive every conversion.
fn deltas(lora: &LoraFile) -> Vec<(String, Vec<f32>)> {
    let delta = |m: &LoraModule| {
        let (rank, width) = (m.rank(), m.down.len() / m.rank());
        let rows = m.up.chunks(rank).flat_map(|up| (0..width).map(move |c| (0..rank).map(|r| up[r] * m.down[r * width + c]).sum::<f32>()));
        (m.module.clone(), rows.map(|v| v * m.scale()).collect())
    };
    lora.modules.iter().map(delta).collect()
}

#[test]
fn kohya_keys_are_spelled_as_other_programs_expect_and_read_back_bit_for_bit() {
    let scratch = Scratch::new();
    let lora = sample(4, 2.0);
    let report = write(&scratch.path(), &lora, Layout::Kohya, DType::F32).unwrap();
    assert_eq!(report, WriteReport::default());
    let file = File::open(&scratch.path()).unwrap();
    let expected = [
        ("lora_te_text_model_encoder_layers_11_self_attn_q_proj.lora_down.weight", vec![4, 8]),
        ("lora_te_text_model_encoder_layers_0_mlp_fc1.lora_up.weight", vec![16, 4]),
        ("lora_unet_down_blocks_0_attentions_1_proj_in.lora_down.weight", vec![4, 6, 1, 1]),
        ("lora_unet_down_blocks_0_attentions_1_proj_in.lora_up.weight", vec![6, 4, 1, 1]),
        ("lora_unet_down_blocks_0_attentions_1_transformer_blocks_0_attn2_to_out_0.alpha", vec![]),
        ("lora_unet_down_blocks_0_downsamplers_0_conv.lora_down.weight", vec![4, 6, 3, 3]),
        ("lora_unet_mid_block_resnets_1_time_emb_proj.lora_down.weight", vec![4, 5]),
        ("lora_unet_up_blocks_2_attentions_0_transformer_blocks_0_ff_net_0_proj.lora_up.weight", vec![48, 4]),
        ("lora_unet_up_blocks_2_resnets_2_conv_shortcut.lora_down.weight", vec![4, 12, 1, 1]),
    ];
    for (key, shape) in expected {
        assert_eq!(file.info(key).map(|info| info.shape.clone()), Some(Shape(shape)), "{key}");
    }
    assert_eq!(file.names().count(), 3 * lora.modules.len());
    let back = read(&scratch.path()).unwrap();
    assert_eq!(back.modules, lora.modules);
    let hash = crate::hex(&<sha2::Sha256 as sha2::Digest>::digest(file.tensor_area()));
    assert_eq!(back.metadata["sshs_model_hash"], hash);
    assert_eq!(back.metadata["sshs_legacy_hash"].len(), 8);
    check(&back, &shapes()).unwrap();
}

#[test]
fn both_layouts_hold_the_same_change_of_the_weights() {
    let scratch = Scratch::new();
    let lora = sample(4, 2.0);
    write(&scratch.path(), &lora, Layout::Diffusers, DType::F32).unwrap();
    let file = File::open(&scratch.path()).unwrap();
    assert!(file.info("unet.down_blocks.0.attentions.1.transformer_blocks.0.attn2.to_out.0.lora_A.weight").is_some());
    assert!(file.names().all(|key| key.contains("lora")), "diffusers refuses a file with any key that has no `lora` in it");
    let back = read(&scratch.path()).unwrap();
    assert!(back.modules.iter().all(|module| module.alpha == 4.0));
    assert_eq!(deltas(&back), deltas(&lora), "alpha/rank = 1/2 is exact");
    check(&back, &shapes()).unwrap();
}

#[test]
fn memory_and_file_order_of_convolutions_are_inverses_and_the_norm_is_that_of_the_product() {
    let lora = sample(3, 6.0);
    for (module, (_, delta)) in lora.modules.iter().zip(deltas(&lora)) {
        let shape = shapes().into_iter().find(|shape| shape.name == module.module).unwrap();
        let again = LoraModule::from_memory(&shape, 3, 6.0, &module.down_in_memory(), &module.up).unwrap();
        assert_eq!(&again, module);
        let norm = delta.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        assert!((module.delta_norm() - norm).abs() < 1e-4 * norm, "{} against {norm}", module.delta_norm());
    }
}

#[test]
fn the_save_type_reports_what_it_destroys_and_saves_nothing_infinite() {
    let scratch = Scratch::new();
    let mut lora = sample(1, 1.0);
    lora.modules.truncate(1);
    lora.modules[0].down = vec![1e-9, 0.0, 1.0, 1e6, -1e6, 0.5, 2.0, 3.0];
    let report = write(&scratch.path(), &lora, Layout::Kohya, DType::F16).unwrap();
    let values = (lora.modules[0].down.len() + lora.modules[0].up.len()) as f64;
    assert_eq!(report, WriteReport { zeros_share: 1.0 / values, infinite_share: 2.0 / values });
    let back = read(&scratch.path()).unwrap();
    assert_eq!(back.modules[0].down[..5], [0.0, 0.0, 1.0, 65504.0, -65504.0]);
    let report = write(&scratch.path(), &lora, Layout::Kohya, DType::BF16).unwrap();
    assert_eq!(report, WriteReport::default());
}

#[test]
fn an_alpha_that_a_half_cannot_hold_is_kept_in_full() {
    let scratch = Scratch::new();
    let lora = sample(4, 0.1);
    write(&scratch.path(), &lora, Layout::Kohya, DType::F16).unwrap();
    assert!(read(&scratch.path()).unwrap().modules.iter().all(|module| module.alpha == 0.1));
}

#[test]
fn values_that_are_not_finite_are_neither_written_nor_read() {
    let scratch = Scratch::new();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut lora = sample(2, 2.0);
        lora.modules[3].up[1] = bad;
        let error = format!("{:#}", write(&scratch.path(), &lora, Layout::Kohya, DType::F16).unwrap_err());
        assert!(error.contains(&lora.modules[3].module) && error.contains("not finite"), "{error}");
        assert!(!scratch.path().exists());
    }
    let mut lora = sample(2, 2.0);
    lora.modules[0].alpha = f32::NAN;
    assert!(write(&scratch.path(), &lora, Layout::Diffusers, DType::F32).is_err());
    let key = "lora_unet_mid_block_attentions_0_proj_in";
    let entry = |end: &str, shape: [usize; 2]| Entry {
        name: format!("{key}.{end}.weight"),
        dtype: DType::F32,
        shape: Shape::from(shape),
        bytes: Cow::Owned(f32::NAN.to_le_bytes().repeat(shape[0] * shape[1])),
    };
    safetensors::write(&scratch.path(), &[entry("lora_down", [1, 2]), entry("lora_up", [2, 1])], &BTreeMap::new()).unwrap();
    let error = format!("{:#}", read(&scratch.path()).unwrap_err());
    assert!(
        error.contains("a.safetensors") && error.contains("damaged") && error.contains("unet.mid_block.attentions.0.proj_in"),
        "{error}"
    );
}

#[test]
fn every_dialect_of_diffusers_is_understood() {
    let scratch = Scratch::new();
    let unet = "down_blocks.0.attentions.0.transformer_blocks.0.attn1";
    let text = "text_model.encoder.layers.0.self_attn";
    let pairs = [
        (format!("unet.{unet}.to_q.lora_A.weight"), format!("unet.{unet}.to_q.lora_B.weight"), format!("unet.{unet}.to_q")),
        (
            format!("base_model.model.unet.{unet}.to_q.lora_A.weight"),
            format!("base_model.model.unet.{unet}.to_q.lora_B.weight"),
            format!("unet.{unet}.to_q"),
        ),
        (
            format!("base_model.model.{unet}.to_k.lora_A.default.weight"),
            format!("base_model.model.{unet}.to_k.lora_B.default.weight"),
            format!("unet.{unet}.to_k"),
        ),
        (format!("unet.{unet}.to_v.lora.down.weight"), format!("unet.{unet}.to_v.lora.up.weight"), format!("unet.{unet}.to_v")),
        (format!("{unet}.processor.to_q_lora.down.weight"), format!("{unet}.processor.to_q_lora.up.weight"), format!("unet.{unet}.to_q")),
        (
            format!("unet.{unet}.processor.to_out_lora.down.weight"),
            format!("unet.{unet}.processor.to_out_lora.up.weight"),
            format!("unet.{unet}.to_out.0"),
        ),
        (
            format!("text_encoder.{text}.q_proj.lora_linear_layer.down.weight"),
            format!("text_encoder.{text}.q_proj.lora_linear_layer.up.weight"),
            format!("text_encoder.{text}.q_proj"),
        ),
        (
            format!("text_encoder.{text}.to_out_lora.down.weight"),
            format!("text_encoder.{text}.to_out_lora.up.weight"),
            format!("text_encoder.{text}.out_proj"),
        ),
        (
            "text_encoder.encoder.layers.0.mlp.fc2.lora_A.weight".to_owned(),
            "text_encoder.encoder.layers.0.mlp.fc2.lora_B.weight".to_owned(),
            "text_encoder.text_model.encoder.layers.0.mlp.fc2".to_owned(),
        ),
    ];
    for (down, up, module) in pairs {
        let lora = scratch.read(&[(&down, &[2, 4]), (&up, &[4, 2])], &[]).unwrap_or_else(|e| panic!("{down}: {e:#}"));
        assert_eq!((lora.modules[0].module.as_str(), lora.modules[0].alpha), (module.as_str(), 2.0));
    }
}

#[test]
fn alpha_comes_from_its_key_whatever_its_shape_else_from_the_adapter_config_else_is_the_rank() {
    let scratch = Scratch::new();
    let name = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q";
    let (down, up, alpha) = (format!("{name}.lora_down.weight"), format!("{name}.lora_up.weight"), format!("{name}.alpha"));
    let alpha_of = |lora: Result<LoraFile>| lora.unwrap().modules[0].alpha;
    let scalar: &[usize] = &[];
    for shape in [scalar, &[1]] {
        assert_eq!(alpha_of(scratch.read(&[(&down, &[4, 6]), (&up, &[6, 4]), (&alpha, shape)], &[])), 1.0);
    }
    assert_eq!(alpha_of(scratch.read(&[(&down, &[4, 6]), (&up, &[6, 4])], &[])), 4.0);
    assert!(scratch.error(&[(&down, &[4, 6]), (&up, &[6, 4]), (&alpha, &[2])]).contains("should be one number"));
    let module = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q";
    let tensors: &[(&str, &[usize])] = &[(&format!("{module}.lora_A.weight"), &[4, 6]), (&format!("{module}.lora_B.weight"), &[6, 4])];
    let config = |text: &str| scratch.read(tensors, &[("lora_adapter_metadata", text)]);
    assert_eq!(alpha_of(config(r#"{"unet.lora_alpha": 8, "unet.r": 4}"#)), 8.0);
    assert_eq!(alpha_of(config(r#"{"unet.lora_alpha": 8, "unet.alpha_pattern": {"attn1.to_q": 2}}"#)), 2.0);
    assert_eq!(alpha_of(config(r#"{"unet.lora_alpha": 8, "unet.alpha_pattern": {"tn1.to_q": 2}}"#)), 8.0);
    assert_eq!(alpha_of(config(r#"{"unet.lora_alpha": 8, "unet.use_rslora": true}"#)), 16.0);
    assert_eq!(alpha_of(config(r#"{"text_encoder.lora_alpha": 8}"#)), 4.0);
    assert!(format!("{:#}", config(r#"{"unet.lora_alpha": 8, "unet.use_dora": true}"#).unwrap_err()).contains("DoRA"));
    assert!(format!("{:#}", config("{").unwrap_err()).contains("not valid JSON"));
}

#[test]
fn nothing_of_a_file_is_dropped_or_guessed() {
    let scratch = Scratch::new();
    let name = "lora_unet_mid_block_attentions_0_proj_in";
    let (down, up) = (format!("{name}.lora_down.weight"), format!("{name}.lora_up.weight"));
    let error = scratch.error(&[(&down, &[4, 6]), (&up, &[6, 4]), ("lora_unet_mid_block_attentions_0_proj_im.alpha", &[])]);
    assert!(error.contains("lora_unet_mid_block_attentions_0_proj_im.alpha"), "{error}");
    let error = scratch.error(&[(&down, &[4, 6]), (&up, &[6, 4]), ("unet.conv_in.lora_A.weight", &[4, 6])]);
    assert!(error.contains("unet.conv_in.lora_A.weight"), "mixed layouts: {error}");
    assert!(scratch.error(&[(&down, &[4, 6])]).contains("no up"));
    assert!(
        scratch.error(&[(&up, &[4, 6])]).contains("no")
            && scratch.error(&[(&up, &[6, 4]), (&down, &[3, 6])]).contains("don't fit together")
    );
    assert!(scratch.error(&[(&down, &[4, 6]), (&up, &[6, 4, 3, 3])]).contains("don't fit together"));
    assert!(scratch.error(&[(&down, &[0, 6]), (&up, &[6, 0])]).contains("don't fit together"));
    let twice = "unet.mid_block.attentions.0.proj_in";
    let error = scratch.error(&[(&format!("{twice}.lora_A.weight"), &[4, 6]), (&format!("{twice}.lora.down.weight"), &[4, 6])]);
    assert!(error.contains("same factor"), "{error}");
}

#[test]
fn adapters_for_other_models_are_named_in_one_sentence() {
    let scratch = Scratch::new();
    let cases: &[(&str, &str)] = &[
        ("lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", "for SDXL"),
        ("lora_unet_input_blocks_4_1_proj_in.lora_down.weight", "for SDXL"),
        ("lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", "FLUX"),
        ("transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight", "FLUX"),
        ("lora_unet_mid_block_attentions_0_proj_in.hada_w1_a", "LoHa"),
        ("unet.conv_in.weight", "not a LoRA"),
    ];
    for (key, expected) in cases {
        let error = scratch.error(&[(key, &[4, 6])]);
        assert!(error.contains(expected) && error.contains("a.safetensors"), "{key}: {error}");
    }
}

#[test]
fn modules_that_would_not_load_into_the_base_are_listed() {
    let lora = sample(4, 4.0);
    let mut base = shapes();
    base.remove(0);
    base[1].kernel = None;
    let error = check(&lora, &base).unwrap_err().to_string();
    assert!(error.starts_with("2 of 8 modules would not load"), "{error}");
    assert!(error.contains("layers.11.self_attn.q_proj is no module") && error.contains("proj_in: down [4×6×1×1]"), "{error}");
}

#[test]
fn the_base_model_itself_says_where_a_lora_can_sit() {
    let model = crate::Checkpoint::open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../assets/tiny-emoji")).unwrap();
    let modules = modules_of(&model);
    let find = |name: &str| modules.iter().find(|module| module.name == name).map(|m| (m.input, m.output, m.kernel));
    assert_eq!(find("unet.conv_in"), Some((4, 64, Some([3, 3]))));
    assert_eq!(find("unet.down_blocks.0.attentions.0.proj_in"), Some((64, 64, Some([1, 1]))));
    assert_eq!(find("unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"), Some((128, 64, None)));
    assert_eq!(find("text_encoder.text_model.encoder.layers.3.mlp.fc1"), Some((128, 512, None)));
    assert_eq!(find("unet.conv_norm_out"), None);
    assert!(modules.iter().all(|module| !module.name.starts_with("vae.") && !module.name.contains("embeddings")));
    let lora = |shape: &ModuleShape| {
        let taps = shape.kernel.map(|[a, b]| a * b).unwrap_or(1);
        LoraModule::from_memory(shape, 2, 2.0, &vec![0.1; 2 * taps * shape.input], &vec![0.1; 2 * shape.output]).unwrap()
    };
    let lora = LoraFile { modules: modules.iter().map(lora).collect(), metadata: BTreeMap::new() };
    check(&lora, &modules).unwrap();
    let scratch = Scratch::new();
    for layout in [Layout::Kohya, Layout::Diffusers] {
        write(&scratch.path(), &lora, layout, DType::F32).unwrap();
        assert_eq!(read(&scratch.path()).unwrap(), lora);
    }
}
