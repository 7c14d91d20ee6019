#!/usr/bin/env python3
"""Trains a small tokenizer for every way in which published models are set up (tokenizer_cases.py), and writes what
Hugging Face's library makes of some texts: ids, offsets in characters, decoded text.

    /tmp/goldens/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    /tmp/goldens/bin/python scripts/goldens/make_tokenizer_goldens.py tests/unit/tokenizer/goldens
"""

import json
import pathlib
import sys

import tokenizer_cases


def case_of(made, text, special):
    encoding = made.encode(text, add_special_tokens=special)
    return {"ids": encoding.ids, "offsets": [each for pair in encoding.offsets for each in pair], "types": encoding.type_ids,
            "decoded": made.decode(encoding.ids, skip_special_tokens=False),
            "plain": made.decode(encoding.ids, skip_special_tokens=True)}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    texts = tokenizer_cases.TEXTS + tokenizer_cases.fuzzed(25, 7)
    pairs = [["Hello world", "second one"], ["a", " the naïve café"]]
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (folder / "texts.json").write_text(dump({"texts": texts, "pairs": pairs}) + "\n", encoding="utf-8")
    for config in tokenizer_cases.CONFIGS:
        made = config()
        name = config.__name__
        (folder / f"{name}.tokenizer.json").write_text(made.to_str() + "\n", encoding="utf-8")
        cases = [dump(case_of(made, text, True)) for text in texts]
        two = []
        for first, second in pairs:
            encoding = made.encode(first, second)
            two.append({"ids": encoding.ids, "types": encoding.type_ids})
        (folder / f"{name}.cases.json").write_text(
            '{"texts":[\n' + ",\n".join(cases) + '\n],"pairs":' + dump(two) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
