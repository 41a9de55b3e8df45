//! Pictures and captions.

use super::*;

#[test]
fn the_encoding_of_captions_goes_by_its_usual_names() {
    let dataset = |name: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, caption_encoding: {name}}}\n");
    for (name, kept) in [("auto", None), ("''", None), ("GBK", Some("gbk")), ("cp936", Some("gbk")), ("sjis", Some("shift_jis"))] {
        let config = read(&dataset(name)).config;
        assert_eq!(config.datasets[0].caption.caption_encoding.as_deref(), kept, "{name}");
        assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    }
    assert_says(&refused(&dataset("klingon")), &["c.yaml:4:26: datasets[0].caption_encoding", "klingon", "windows-1251"]);
}

#[test]
fn captions_have_their_keys_under_both_their_names() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{image_dir: /imgs, {keys}}}\n");
    let keys = "caption_extension: [.caption, txt], shuffle_caption: true, keep_tokens_separator: '|||', caption_tag_dropout_rate: 0.1, \
                replacements: ['cat|dog', 'a|b|c'], random_triggers: [x], missing_captions: skip, kohya_folders: false, flip_aug: true";
    let config = read(&dataset(keys)).config;
    let captions = &config.datasets[0].caption;
    assert_eq!((captions.caption_ext.as_slice(), captions.shuffle_tokens), (["caption".to_string(), "txt".to_string()].as_slice(), true));
    assert_eq!((captions.token_dropout_rate, captions.missing_captions, captions.kohya_folders), (0.1, MissingCaptions::Skip, Some(false)));
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    for (keys, parts) in [
        ("replacements: [cat]", ["replacements", "from|to"]),
        ("replacements: ['|x']", ["replacements", "nothing in front"]),
        ("missing_captions: none", ["missing_captions", "fill, skip or stop"]),
        ("caption_ext: []", ["caption_ext", "empty"]),
        ("caption_separator: ' '", ["caption_separator", "nothing"]),
        ("shuffle_tokens: true, shuffle_caption: false", ["duplicate", "shuffle"]),
    ] {
        assert_says(&refused(&dataset(keys)), &parts);
    }
    for random in ["enable_wildcard: true", "replacements: ['a|b|c']", "random_triggers: [x]"] {
        assert!(!read(&dataset(random)).config.train.cache_text_embeddings, "{random}");
        assert_says(&refused(&dataset(&format!("cache_text_embeddings: true, {random}"))), &["cache_text_embeddings", &random[..10]]);
    }
    assert!(read(&dataset("replacements: ['a|b']")).config.train.cache_text_embeddings);
}

#[test]
fn the_background_of_transparent_pictures_is_a_colour() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, {keys}}}\n");
    assert_eq!(read(&dataset("background: black")).config.datasets[0].background, [0; 3]);
    assert_eq!(read(&dataset("background: '#0aff10'")).config.datasets[0].background, [10, 255, 16]);
    assert_says(&refused(&dataset("background: '#12'")), &["datasets[0].background", "#12"]);
}

#[test]
fn a_resolution_is_a_side_or_two_or_a_list_of_either() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, {keys}}}\n");
    let config =
        read(&dataset("resolution: [512, 768x1152, '1024×768'], enable_bucket: true, bucket_no_upscale: true, bucket_scheme: list")).config;
    let sides = |width, height| Resolution { width, height };
    assert_eq!(config.datasets[0].resolution, [sides(512, 512), sides(768, 1152), sides(1024, 768)]);
    assert!(config.datasets[0].bucket_no_upscale && config.datasets[0].buckets);
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    for (keys, part) in
        [("resolution: 768x", "768x1152"), ("resolution: [512, 512x512]", "twice"), ("resolution: 768x4", "between 8 and 16384")]
    {
        assert_says(&refused(&dataset(keys)), &["resolution", part]);
    }
    let notices = read(&dataset("bucket_no_upscale: true")).notices;
    assert!(notices[0].contains("bucket_no_upscale") && notices[0].contains("ratio"), "{notices:?}");
}

#[test]
fn text_embeddings_are_cached_by_themselves_unless_something_stands_against_it() {
    let shuffled = MINIMAL.replace("/imgs", "/imgs\n    shuffle_tokens: true");
    let dropped = MINIMAL.replace("/imgs", "/imgs\n    caption_dropout_rate: 0.1");
    assert!(read(MINIMAL).config.train.cache_text_embeddings && read(&dropped).config.train.cache_text_embeddings);
    assert!(!read(&shuffled).config.train.cache_text_embeddings);
    assert!(!with("train: {train_text_encoder: true}").train.cache_text_embeddings);
    assert!(!with("train: {cache_text_embeddings: false}").train.cache_text_embeddings);
}

#[test]
fn regularisation_pictures_get_no_trigger_word_of_the_run() {
    let text = "name: a\nmodel: {path: m}\ntrigger_word: sks\ndatasets:\n  - {folder_path: x}\n  - {folder_path: y, is_reg: true, loss_multiplier: 0.5}\n";
    let config = read(text).config;
    let triggers: Vec<Option<&str>> = config.datasets.iter().map(|d| d.caption.trigger_word.as_deref()).collect();
    assert_eq!(triggers, [Some("sks"), None]);
    assert_eq!((config.datasets[1].is_reg, config.datasets[1].loss_multiplier, config.datasets[0].loss_multiplier), (true, 0.5, 1.0));
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
}
