#!/usr/bin/env python3
"""Writes what transformers makes of tokenizer folders in old layouts, with tokens that were added later.

    /tmp/goldens/bin/pip install transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    /tmp/goldens/bin/python scripts/goldens/make_old_tokenizer_goldens.py tests/unit/tokenizer/old_layouts

Every case is a folder: the files of a base (trained here on the project's own text) and small JSON files next to them. cases.json has
these, texts, and the ids that AutoTokenizer.from_pretrained of the folder gives, with special tokens and without.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import tokenizer_cases
import transformers

TEXTS = ["Hello world", " hello  world", "<|im_start|>user hello<|im_end|>\n", "a <|im_end|> b", "one<|im_end|>two <|im_end|>three  <extra>", "<s>Hi</s>",
         "x<tag>y <tag> z", "Wort<word>Wort <word> end", "NEW token new TOKEN", "hello <|endoftext|> there", "", "\n\nlines\nof text  ",
         "<|im_start|>", "größe naïve 你好 😀", "<unk> <pad> [PAD]"]


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True, **flags}


def named(content, **flags):
    made = {"__type": "AddedToken", **token(content, **flags)}
    made.pop("special")
    return made


def make_bases(out):
    spm = tokenizer_cases.train_sentencepiece(model_type="bpe", vocab_size=560, byte_fallback=True, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
                                              normalization_rule_name="identity", remove_extra_whitespaces=False)
    (out / "llama").mkdir(parents=True, exist_ok=True)
    (out / "llama/tokenizer.model").write_bytes(spm)
    made = tokenizer_cases.bpe(tokenizer_cases.pre_tokenizers.ByteLevel(add_prefix_space=False), size=360, special=["<|endoftext|>"])
    model = json.loads(made.to_str())["model"]
    for name, has_end in (("gpt2", True), ("qwen2", False)):
        (out / name).mkdir(exist_ok=True)
        vocab = {key: value for key, value in model["vocab"].items() if has_end or key != "<|endoftext|>"}
        vocab = {key: place for place, key in enumerate(sorted(vocab, key=vocab.get))}
        (out / name / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
        lines = ["#version: 0.2"] + [" ".join(pair) for pair in model["merges"]]
        (out / name / "merges.txt").write_text("\n".join(lines) + "\n")
    (out / "json").mkdir(exist_ok=True)
    made.add_tokens([tokenizer_cases.AddedToken("<tag>", rstrip=True, normalized=False)])
    (out / "json/tokenizer.json").write_text(made.to_str(), encoding="utf-8")


SIZE = {"llama": 560, "gpt2": 360, "qwen2": 359, "json": 361}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
         "add_eos_token": False}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
GPT2 = {"tokenizer_class": "GPT2Tokenizer"}


def decoder(base, *tokens, first=None):
    first = SIZE[base] if first is None else first
    return {str(first + place): each for place, each in enumerate(tokens)}


def llama_decoder(*tokens):
    return {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>"), **decoder("llama", *tokens)}


IM = (token("<|im_start|>"), token("<|im_end|>"))
IM_JSON = {"<|im_start|>": 360, "<|im_end|>": 361}
CASES = {
    # SentencePiece's tokenizer.model of the Llama class.
    "llama_decoder": ("llama", {"tokenizer_config.json": {**LLAMA, "added_tokens_decoder": llama_decoder(*IM)}}),
    "llama_flags": ("llama", {"tokenizer_config.json": {**LLAMA, "added_tokens_decoder": llama_decoder(
        token("<|im_end|>", rstrip=True), token("<tag>", lstrip=True, special=False), token("<word>", single_word=True),
        token("NEW", normalized=True, special=False))}}),
    "llama_added_json": ("llama", {"tokenizer_config.json": LLAMA, "added_tokens.json": {"<|im_start|>": 560, "<|im_end|>": 561, "<tag>": 562},
                                   "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}}),
    "llama_map_objects": ("llama", {"tokenizer_config.json": {key: LLAMA[key] for key in ("tokenizer_class", "add_bos_token")},
                                    "special_tokens_map.json": {"eos_token": {**token("<|im_end|>", normalized=True)}, "pad_token": "[PAD]"}}),
    "llama_additional": ("llama", {"tokenizer_config.json": {**LLAMA, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}}),
    "llama_pad_new": ("llama", {"tokenizer_config.json": {**LLAMA, "pad_token": "<pad>"}}),
    "llama_legacy": ("llama", {"tokenizer_config.json": {**LLAMA, "legacy": True, "added_tokens_decoder": llama_decoder(*IM)}}),
    "llama_no_prefix": ("llama", {"tokenizer_config.json": {**LLAMA, "add_prefix_space": False, "added_tokens_decoder": llama_decoder(*IM)}}),
    "llama_ends": ("llama", {"tokenizer_config.json": {**LLAMA, "add_bos_token": False, "add_eos_token": True, "eos_token": named("</s>")}}),
    "llama_no_flags": ("llama", {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}),
    "llama_gap": ("llama", {"tokenizer_config.json": {**LLAMA, "added_tokens_decoder": {**llama_decoder(), "600": token("<|im_start|>")}}}),
    # GPT-2's vocab.json and merges.txt.
    "gpt2_bare": ("gpt2", {"tokenizer_config.json": GPT2}),
    "gpt2_added_json": ("gpt2", {"tokenizer_config.json": GPT2, "added_tokens.json": IM_JSON}),
    "gpt2_added_special": ("gpt2", {"tokenizer_config.json": {**GPT2, "eos_token": "<|im_end|>"}, "added_tokens.json": IM_JSON,
                                    "special_tokens_map.json": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}}),
    "gpt2_decoder": ("gpt2", {"tokenizer_config.json": {**GPT2, "added_tokens_decoder": {
        "0": token("<|endoftext|>"), **decoder("gpt2", token("<|im_end|>", lstrip=True), token("<tag>", rstrip=True, special=False),
                                               token("NEW", normalized=True, special=False))}}}),
    "gpt2_additional": ("gpt2", {"tokenizer_config.json": {**GPT2, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "pad_token": "[PAD]"}}),
    "gpt2_map_only": ("gpt2", {"tokenizer_config.json": GPT2, "special_tokens_map.json": {
        "eos_token": token("<|endoftext|>"), "pad_token": "<pad>", "additional_special_tokens": ["<tag>", "<|im_end|>"]}}),
    "gpt2_prefix_space": ("gpt2", {"tokenizer_config.json": {**GPT2, "add_prefix_space": True}}),
    "opt": ("gpt2", {"tokenizer_config.json": {**GPT2, "add_bos_token": True, "bos_token": named("</s>", normalized=True), "eos_token": named("</s>", normalized=True),
                                               "unk_token": named("</s>", normalized=True), "pad_token": named("<pad>", normalized=True)}}),
    "gpt2_gap": ("gpt2", {"tokenizer_config.json": {**GPT2, "added_tokens_decoder": {"0": token("<|endoftext|>"), "365": token("<tag>")}}}),
    # Qwen2's.
    "qwen2_decoder": ("qwen2", {"tokenizer_config.json": {
        "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "added_tokens_decoder": decoder("qwen2", token("<|endoftext|>"), *IM)}}),
    "qwen2_added_json": ("qwen2", {"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
                                   "added_tokens.json": {"<|endoftext|>": 359, "<|im_start|>": 360, "<|im_end|>": 361}}),
    # tokenizer.json with side files that name more tokens.
    "json_alone": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|endoftext|>"}}),
    "json_new_end": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|im_end|>", "pad_token": named("[PAD]", lstrip=True)}}),
    "json_decoder": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|im_end|>", "added_tokens_decoder": {
        "0": token("<|endoftext|>"), "360": token("<tag>", lstrip=True, special=False), **decoder("json", *IM)}}}),
    "json_added_json": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|endoftext|>"},
                                 "added_tokens.json": {"<|im_start|>": 361, "<|im_end|>": 362}}),
    "json_map": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|endoftext|>"}, "special_tokens_map.json": {
        "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}}),
    "json_additional": ("json", {"tokenizer_config.json": {**FAST, "eos_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}}),
}


def main():
    out = pathlib.Path(sys.argv[1])
    make_bases(out)
    cases = {}
    for name, (base, files) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for each in (out / base).iterdir():
                shutil.copy(each, folder)
            for each, content in files.items():
                (pathlib.Path(folder) / each).write_text(json.dumps(content))
            made = transformers.AutoTokenizer.from_pretrained(folder)
            cases[name] = {"base": base, "files": files, "class": type(made).__name__,
                           "ids": [made(text)["input_ids"] for text in TEXTS],
                           "plain": [made(text, add_special_tokens=False)["input_ids"] for text in TEXTS],
                           "special": sorted(set(made.all_special_ids)), "end": made.eos_token_id}
    lines = [f'"texts": {json.dumps(TEXTS, ensure_ascii=False)}']
    lines += [f'"{name}": {json.dumps(case, ensure_ascii=False)}' for name, case in cases.items()]
    (out / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
