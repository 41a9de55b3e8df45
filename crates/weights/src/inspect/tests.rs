use super::*;
use crate::lora::{LoraFile, LoraModule};
use base::Shape;
use std::collections::BTreeMap;

fn lora() -> LoraFile {
    let module = |name: &str, rank: usize| LoraModule {
        module: name.to_owned(),
        down: vec![0.5; rank * 4],
        down_shape: Shape::from([rank, 4]),
        up: vec![0.0; 3 * rank],
        up_shape: Shape::from([3, rank]),
        alpha: 2.0,
    };
    let mut modules = vec![
        module("text_encoder.text_model.encoder.layers.0.mlp.fc1", 2),
        module("unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q", 4),
        module("unet.mid_block.attentions.0.transformer_blocks.0.ff.net.2", 4),
    ];
    modules[1].up = vec![1.0; 12];
    let metadata = BTreeMap::from([("ss_base_model_version".to_owned(), "sd_v1".to_owned()), ("note".to_owned(), "é".repeat(500))]);
    LoraFile { modules, metadata }
}

#[test]
fn a_lora_is_summarised_for_people_and_programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    lora::write(&path, &lora(), Layout::Kohya, DType::BF16).unwrap();
    let summary = inspect(&path).unwrap();
    let Summary::Lora(s) = &summary else { panic!("{summary:?}") };
    assert_eq!((s.family, s.layout), (Some(Family::Sd1), Layout::Kohya));
    assert_eq!(s.ranks, BTreeMap::from([(2, 1), (4, 2)]));
    assert_eq!(s.modules_by_kind["unet"], BTreeMap::from([("attention", 1), ("feed-forward", 1)]));
    assert_eq!(s.parameters, 2 * 7 + 4 * 7 + 4 * 7);
    assert!((s.zero_share - 18.0 / 70.0).abs() < 1e-12);
    // up·down is 3×4 of 4·0.5 = 2; times alpha/rank = 1/2: norm √12
    assert!((s.delta_norm - 12f64.sqrt()).abs() < 1e-6, "{}", s.delta_norm);
    let text = summary.to_string();
    for part in
        ["a LoRA for SD 1.x, kohya layout, bf16", "2 (×1), 4 (×2)", "1 attention, 1 feed-forward", "(500 characters)", "sshs_model_hash"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!((json["kind"].as_str(), json["layout"].as_str(), json["family"].as_str()), (Some("lora"), Some("kohya"), Some("sd1")));
}

#[test]
fn conversion_there_and_back_keeps_the_change_of_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    lora::write(&path("kohya"), &lora(), Layout::Kohya, DType::F16).unwrap();
    convert(&path("kohya"), &path("diffusers"), Layout::Diffusers, None).unwrap();
    convert(&path("diffusers"), &path("again"), Layout::Kohya, Some(DType::F32)).unwrap();
    let open = |name: &str| lora::open(&path(name)).unwrap();
    assert_eq!(open("diffusers").dtypes.into_iter().collect::<Vec<_>>(), [DType::F16]);
    assert_eq!(open("again").layout, Layout::Kohya);
    let norms = |name: &str| open(name).lora.modules.iter().map(LoraModule::delta_norm).collect::<Vec<_>>();
    assert_eq!(norms("again"), norms("kohya"));
    assert_eq!(open("again").lora.metadata["ss_base_model_version"], "sd_v1");
    // in place
    convert(&path("kohya"), &path("kohya"), Layout::Diffusers, None).unwrap();
    assert_eq!(open("kohya").layout, Layout::Diffusers);
}

#[test]
fn base_models_and_strangers_are_described() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets");
    let summary = inspect(&assets.join("tiny-emoji.safetensors")).unwrap();
    let Summary::Base(s) = &summary else { panic!("{summary:?}") };
    assert_eq!((s.family, s.refusal.as_ref(), s.components.len()), (Family::Sd1, None, 3));
    assert_eq!(s.prediction_type.as_deref(), Some("epsilon"));
    let text = summary.to_string();
    assert!(text.contains("an SD 1.x checkpoint (single file, 550 tensors") && text.contains("M parameters"), "{text}");
    let inner = inspect(&assets.join("tiny-emoji")).unwrap().to_string();
    assert!(inner.contains("diffusers folder"), "{inner}");
}

/// Damages sound LoRA and base-model files in many ways: each is described or refused, none panics.
#[test]
fn damaged_files_are_described_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, base) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    lora::write(&path, &lora(), Layout::Kohya, DType::F16).unwrap();
    let tensor = |name: &str, shape: &[usize]| crate::safetensors::Entry {
        name: name.to_owned(),
        dtype: DType::F16,
        shape: Shape::new(shape),
        bytes: vec![0; 2 * shape.iter().product::<usize>()].into(),
    };
    let layer = "cond_stage_model.model.transformer.resblocks";
    let entries = [
        tensor(&format!("{layer}.0.attn.in_proj_weight"), &[6, 2]),
        tensor(&format!("{layer}.1.attn.in_proj_bias"), &[6]),
        tensor("model.diffusion_model.input_blocks.3.0.op.weight", &[2, 2, 3, 3]),
        tensor("model.diffusion_model.output_blocks.5.2.conv.weight", &[2, 2, 3, 3]),
        tensor("first_stage_model.decoder.up.1.block.0.conv1.weight", &[2, 2, 3, 3]),
    ];
    crate::safetensors::write(&base, &entries, &BTreeMap::new()).unwrap();
    let seed = 7;
    let mut rng = base::Rng::new(seed, "damage", &[]);
    for file in [path, base] {
        let sound = std::fs::read(&file).unwrap();
        let header = 8 + u64::from_le_bytes(sound[..8].try_into().unwrap());
        let mut described = 0;
        for _ in 0..400 {
            let mut bytes = sound.clone();
            let at = (8 + rng.below(header - 8)) as usize;
            bytes[at] = b"0123456789.\"_xA[,"[rng.below(17) as usize];
            std::fs::write(&file, &bytes).unwrap();
            if let Ok(summary) = inspect(&file) {
                assert!(!summary.to_string().is_empty());
                described += 1;
            }
            if let Ok(model) = Checkpoint::open(&file) {
                model.names().for_each(|name| drop(model.tensor(name)));
            }
        }
        assert!(described > 0, "seed {seed}: some damage only renames a key");
    }
}
