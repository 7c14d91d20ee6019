#!/usr/bin/env python3
"""Makes tests/unit/base/goldens/hjson.json with the Python package hjson.

    python scripts/goldens/make_hjson_goldens.py tests/unit/base/goldens

Needs hjson 3.1.0, which deepspeed brings along; the tests that read the golden need no Python. A case
is [text, value], or [text] where hjson refuses the text or DeepSpeed its repeated names. Beside texts
written by hand there are seeded mutations of them, which nobody would have thought of.
"""

import json
import pathlib
import random
import sys

import hjson

CONFIG = """{
  // a config as people write it
  "train_batch_size": 32, # global
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.999]}},
  /* ZeRO */ "zero_optimization": {"stage": 2, "overlap_comm": true},
}
"""
BARE = """# no braces, no quotes
train_batch_size: 32
fp16: {
  enabled: false
  loss_scale: 0
}
steps_per_print: null
wall_clock_breakdown: True
tensorboard: {
  output_path: logs/run 1, first # kept
  'job_name': "it's",
}
"""
MULTILINE = """{
  text: '''
        first
          second
        '' third
        '''
  other: \"x\"
}
"""
TEXTS = [
    CONFIG, BARE, MULTILINE, "", " \n", "# only a comment\n", "{}", "[]", "{,}", "[,]", "[1,,2]", "{a:1,,b:2}",
    "[1, 2, 3,]", "[1 2]", "[1\n2\n3]", "[\"a\" \"b\"]", "{\"a\": \"x\" \"b\": 2}", "{\"a\": 1 \"b\": 2}",
    "{a: 1, b: 2}", "a: 1, b: 2", "{a: x, b: 2}\n", "{a: x, b: 2}\n}", "{a: 1", "a: 1}", "{a: 1}}", "{a: 1} x",
    "{a: 1} # x", "{a b: 1}", "{a\n: 1}", "{a # c\n: 1}", "{\"a\" # c\n: 1}", "{a: # c\n 1}", "{a: }", "{: 1}",
    "{\"\": 1}", "{a#b: 1}", "{a//b: 1}", "{#a: 1}", "{a\"b\": 1}", "{'a': 'b\"c'}", "{\"a\": \"b'c\"}",
    "{'a\\'b': \"\\'\"}", "{a: 01}", "{a: +1}", "{a: .5}", "{a: 1.}", "{a: -}", "{a: -1.5e-3 }", "{a: 1e5}",
    "{a: 1E+2, b: -0, c: 0.1}", "{a: 1e}", "{a: 0x10}", "{a: 12345678901234567890123}", "{a: 1.0}",
    "{a: 9007199254740993}", "{a: 18446744073709551615}", "{a: NaN}", "{a: Infinity}", "{a: true false}",
    "{a: true, b: false, c: null}", "{a: truex}", "{a: true# x\n}", "{a: null// x\n}", "{a: 1/* x */}",
    "{a: 1 / 2\n}", "{a: True\n}", "{a: nul\n}", "a: 1\nb: 2", "a: 1\r\nb: two \r\nc: 3\r\n", "a: x y  \nb: 1",
    "{a: /x\n}", "{a: x // not a comment\n}", "{a: [\n  x\n  y, z\n  1, 2\n]}", "{a: {b: {c: [{}]}}}",
    "{a: 1, a: 2}", "{a: {b: 1, \"b\": 2}}", "{a: 1, A: 2}", "/* open {a: 1}", "{a: /* x */ 1 /**/}", "/**/{}",
    "{a: /*/ 1 /*/ 2}", "{\"a\": \"open\n}", "{\"a\": \"tab\there\"}", "{\"a\": \"\\u00e9\\ud83d\\ude00\\n\\/\"}",
    "{\"a\": \"\\x\"}", "{\"a\": \"\\u12\"}", "{\"a\": \"\\", "{größe: 1, b: 'ä'}", "{a: größe\n}", "\ufeff{a: 1}",
    "{\n  a: '''one''', b: 1\n}", "{\n  a: ''''''\n}", "{\n  a: ''' x '''\n}", "{\n  a: '''\n  x\n   y\n  '''\n}",
    "{\n  a:\n    '''\n    x\n\n    y'''\n}", "{\n  a: '''x\n}", "{\n\ta: '''\n\t\tx\n\t'''\n}", "{\n  '''a''': 1\n}",
    "{\n  a: ''''x''''\n}", "{\n  a: '''\n    x\\n\"y\" # z\n    '''\n}", "'a': 1", "true", "\"a\"", "5", "x",
    "{\"a\": [1, 2}", "{\"a\": [1, 2", "{\"a\" 1}", "{\"a\": :}", "[:]", "[\"a\": 1]", "{\"a\", \"b\"}", "]", "}",
    "{\"a\": \"\x7f\"}", "{a: \x01\n}", "{a: \"\x01\"}", "{a:1}", "a:1", "{a:b}\n}", "{a:\"b\"}", "{\"a\":1,\"b\":[2]}",
]
PIECES = list("{}[],:'\"#/*\\ \n\t01-.eatrufnl") + ["'''", "//", "/*", "*/", "true", "null", "\\u0041", ": ", ",\n"]


def beyond_the_goldens(text):
    """What the package itself stumbles over: ''' on the first line looks for a line before it."""
    return "'''" in text.split("\n", 1)[0]


def refuse_repeated(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("repeated name")
    return dict(pairs)


def read(text):
    try:
        value = hjson.loads(text, object_pairs_hook=refuse_repeated)
        json.dumps(value, allow_nan=False).encode("utf-8")
    except Exception:  # crashes of the package are refusals too
        return None
    return value if isinstance(value, (dict, list)) else None


def mutations(count):
    rng = random.Random(7)
    while count > 0:
        text = rng.choice(TEXTS)
        for _ in range(rng.choice([1, 1, 2, 3])):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(PIECES + [""]) + text[at + rng.choice([0, 0, 1, 2]):]
        if not beyond_the_goldens(text):
            count -= 1
            yield text


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if hjson.__version__ != "3.1.0":
        sys.exit(f"this needs hjson 3.1.0, not {hjson.__version__}")
    lines = []
    for text in dict.fromkeys(TEXTS + list(mutations(900))):
        value = read(text)
        lines.append(json.dumps([text] if value is None else [text, value]))
    path = pathlib.Path(sys.argv[1]) / "hjson.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
