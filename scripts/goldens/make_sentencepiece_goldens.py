#!/usr/bin/env python3
"""Trains small SentencePiece models and writes what SentencePiece makes of some texts.

    /tmp/goldens/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    /tmp/goldens/bin/python scripts/goldens/make_sentencepiece_goldens.py tests/unit/tokenizer/sentencepiece_goldens
"""

import json
import pathlib
import sys

import sentencepiece
import tokenizer_cases

RULES = pathlib.Path("/tmp/tokenizer_rules.tsv")
KINDS = {
    "bpe_bytes": {"model_type": "bpe", "vocab_size": 480, "byte_fallback": True, "normalization_rule_name": "identity",
                  "remove_extra_whitespaces": False, "user_defined_symbols": ["<sep>", "abc"]},
    "bpe": {"model_type": "bpe", "vocab_size": 300, "normalization_rule_tsv": str(RULES)},
    "unigram": {"model_type": "unigram", "vocab_size": 300, "normalization_rule_tsv": str(RULES), "user_defined_symbols": ["<sep>"]},
    "unigram_suffix": {"model_type": "unigram", "vocab_size": 300, "normalization_rule_name": "identity",
                       "treat_whitespace_as_suffix": True},
}
CONTROL = ("<s>", "</s>", "<unk>")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    RULES.write_text("\n".join(tokenizer_cases.RULES) + "\n", encoding="utf-8")
    # Control pieces are special tokens in a Hugging Face folder, and plain text for SentencePiece alone.
    texts = [text for text in tokenizer_cases.TEXTS + tokenizer_cases.fuzzed(60, 5) + ["a<sep> b", "<sep><sep>abcabcd"]
             if not any(each in text for each in CONTROL) and "\0" not in text]
    cases = {"texts": texts}
    for name, settings in KINDS.items():
        model = tokenizer_cases.train_sentencepiece(**settings)
        (folder / f"{name}.model").write_bytes(model)
        made = sentencepiece.SentencePieceProcessor(model_proto=model)
        cases[name] = [made.encode(text) for text in texts]
        cases[name + "_decoded"] = [made.decode(ids) for ids in cases[name]]
    (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
