"""Writes crates/models/tests/tokenizer.json: token ids that transformers' CLIPTokenizer gives for many kinds of text, with the small
vocabulary of assets/tiny-emoji and with CLIP's own (assets/clip), the latter once padded as in SD 1.x and once as in SD 2.x.

Run with transformers installed: python tools/golden/clip_tokenizer.py"""

import gzip
import json
import pathlib
import tempfile

import tokenizers
import transformers
from transformers import CLIPTokenizer

ROOT = pathlib.Path(__file__).parents[2]
OUT = ROOT / "crates/models/tests/tokenizer.json"

TEXTS = [
    "", " ", "   \t\n ", "a", "cat", "A photo of a cat", "a photo of a cat.", "a  photo   of\ta\n\ncat", "  leading and trailing  ",
    "HC style, a Grinning Face", "hc style, a crying face, white background", "masterpiece, best quality, 1girl, solo, long hair",
    "(masterpiece:1.2), [bad quality], {curly}", "it's he's they're we've I'm you'll she'd don't", "IT'S HE'S THEY'RE",
    "rock'n'roll o'clock '90s 'quoted'", "12345", "1girl 2boys 3.14 1,000,000", "v1.5-pruned_emaonly", "foo_bar__baz", "https://example.com/a?b=c&d=e#f",
    "C:\\Users\\me\\image.png", "user@example.com", "#hashtag @mention $100 50% & more", "!!!", "???!!!...", "---", "a-b-c", "a - b - c", "…", "—–-",
    "\u201csmart quotes\u201d and \u2018these\u2019", "naïve café", "nai\u0308ve cafe\u0301", "Ångström Å Å", "ÄÖÜäöüß", "İstanbul ISTANBUL ı", "ﬁne ﬂow ½ ² ™",
    "ΑΒΓ αβγ Σίσυφος", "Привет, мир", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "こんにちは世界", "カタカナ ｶﾀｶﾅ", "안녕하세요 세계",
    "一只猫坐在窗台上", "一只猫，坐在窗台上。水墨画风格！", "猫 cat 猫cat", "１２３ ＡＢＣ", "😀", "😀😃😄", "👩‍👩‍👧‍👦 family", "👍🏽 thumbs", "🇩🇪 flag", "a 🚀 rocket!", "❤️ ❤",
    "a\u00a0non-breaking\u00a0space", "zero\u200bwidth\u200djoiner", "ideographic\u3000space", "em\u2003space\u2009thin", "line\u2028separator\u2029paragraph",
    "next\u0085line", "vertical\u000btab\u000cfeed\rreturn", "null\u0000byte", "bell\u0007 escape\u001b", "soft\u00adhyphen", "\ufeffbom", "mongolian\u180evowel",
    "replacement \ufffd character", "math 𝒜𝓑𝔠 ∑∫√∞ ≠ ≤", "①②③ Ⅳ ⅷ", "٣٤٥ ४५६", "<|startoftext|>", "<|endoftext|>", "before <|endoftext|> after",
    "<|endoftext|><|startoftext|>", "<lora:name:0.8>", "<sks> dog", "a</w>", "&amp; &lt; html", "tab\tseparated\tvalues", "supercalifragilisticexpialidocious",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "xqzjwvkpfhg", "word " * 30, "a detailed oil painting of a lighthouse at dawn, " * 12,
    "长长的标题" * 40, "🎨" * 60, "1234567890 " * 20, "(((((((((((((((((((((((((((((", "a,b;c:d.e!f?g/h|i~j`k^l*m+n=o",
]


def special(pad):
    token = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    return {"bos_token": dict(token, content="<|startoftext|>"), "eos_token": dict(token, content="<|endoftext|>"), "pad_token": pad,
            "unk_token": dict(token, content="<|endoftext|>")}


def clip_folder(folder, pad):
    """CLIP's vocabulary as the folders of Stable Diffusion hold it: vocab.json, merges.txt and two configs, no tokenizer.json."""
    merges = gzip.decompress((ROOT / "assets/clip/merges.txt.gz").read_bytes()).decode().splitlines()
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    symbols = [chr(b) for b in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    tokens = symbols + [s + "</w>" for s in symbols] + [m.replace(" ", "") for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    assert len(tokens) == len(set(tokens)) == 49408
    folder.mkdir()
    write = lambda name, value: (folder / name).write_text(json.dumps(value, ensure_ascii=False))
    write("vocab.json", {token: i for i, token in enumerate(tokens)})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    write("special_tokens_map.json", special(pad))
    write("tokenizer_config.json", {"add_prefix_space": False, "do_lower_case": True, "errors": "replace", "model_max_length": 77,
                                    "pad_token": "<|endoftext|>", "tokenizer_class": "CLIPTokenizer",
                                    "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})
    return folder


def cases(tokenizer, length):
    rows = []
    for text in TEXTS:
        full = tokenizer(text).input_ids
        chunk = tokenizer(text, padding="max_length", truncation=True, max_length=length).input_ids
        assert full[0] == tokenizer.bos_token_id and full[-1] == tokenizer.eos_token_id
        rows.append({"text": text, "ids": full[1:-1], "chunk": chunk})
    return rows


def main():
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        sets = {
            "tiny": cases(CLIPTokenizer.from_pretrained(ROOT / "assets/tiny-emoji/tokenizer"), 32),
            "sd1": cases(CLIPTokenizer.from_pretrained(clip_folder(work / "sd1", "<|endoftext|>")), 77),
            "sd2": cases(CLIPTokenizer.from_pretrained(clip_folder(work / "sd2", "!")), 77),
        }
    made = {"script": "tools/golden/clip_tokenizer.py", "transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    lines = ",\n".join(f' "{name}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]" for name, rows in sets.items())
    OUT.write_text(f'{{\n "made_by": {json.dumps(made)},\n{lines}\n}}\n')
    print(len(TEXTS), "texts", OUT.stat().st_size, "bytes; pads", sets["sd1"][0]["chunk"][:4], sets["sd2"][0]["chunk"][:4])


if __name__ == "__main__":
    main()
