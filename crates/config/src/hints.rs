//! Which key of a section is meant by one that it doesn't have.

/// What other tools call ours.
const ELSEWHERE: [(&str, &str); 20] = [
    ("accumulate_grad_batches", "gradient_accumulation"),
    ("grad_accum", "gradient_accumulation"),
    ("grad_accum_steps", "gradient_accumulation"),
    ("max_steps", "steps"),
    ("num_steps", "steps"),
    ("num_epochs", "epochs"),
    ("num_train_epochs", "epochs"),
    ("negative_prompt", "neg"),
    ("cfg", "guidance_scale"),
    ("cfg_scale", "guidance_scale"),
    ("num_inference_steps", "sample_steps"),
    ("r", "linear"),
    ("lora_r", "linear"),
    ("lora_rank", "linear"),
    ("lora_alpha", "linear_alpha"),
    ("lora_dropout", "dropout"),
    ("pretrained_model_name_or_path", "name_or_path"),
    ("base_model", "name_or_path"),
    ("data_dir", "folder_path"),
    ("image_folder", "folder_path"),
];

/// The key among those of a section that is meant for sure: in other letters, under another tool's name, or by its first or last words.
pub(crate) fn meant_by(key: &str, expected: &[&'static str]) -> Option<&'static str> {
    let lower = key.to_lowercase();
    let listed = |name: &str| expected.iter().copied().find(|known| *known == name);
    let translated = || ELSEWHERE.iter().filter(|(name, _)| *name == lower).find_map(|(_, ours)| listed(ours));
    let only = |is_meant: &dyn Fn(&str) -> bool| {
        let mut found = expected.iter().copied().filter(|known| is_meant(known));
        let (first, second) = (found.next(), found.next());
        first.filter(|_| key.len() > 2 && second.is_none())
    };
    let begun = || only(&|known| known.strip_prefix(&*lower).is_some_and(|rest| rest.starts_with('_')));
    let ended = || only(&|known| known.strip_suffix(&*lower).is_some_and(|before| before.ends_with('_')));
    listed(&lower).or_else(translated).or_else(begun).or_else(ended)
}
