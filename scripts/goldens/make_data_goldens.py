#!/usr/bin/env python3
"""Makes tests/unit/tokenizer/data_goldens with datasets: files of rows, folders and what it reads of them.

    python scripts/goldens/make_data_goldens.py tests/unit/tokenizer/data_goldens

Needs datasets 5.2. rows.json has the rows of every file and of every folder of save_to_disk; splits.json has, for lists of
paths (each file one row that holds its own path), the files of the split "train" in datasets' order, or the names of the
splits where there is no such one, or "refused".
"""

import gzip
import json
import pathlib
import shutil
import sys
import tempfile

import datasets
import yaml

ROWS = [{"text": "grüße\n\"zwei\" 語", "n": 1, "messages": [{"role": "user", "content": "a\\"}]},
        {"text": "", "n": -2, "messages": [{"role": "assistant", "content": "[1, 2] {}"}]},
        {"text": "drei, vier", "n": 3, "messages": []}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
TYPES = """whole,holes,real,yes,maybe,word,mixed,none,code,big
1,1,0.5,True,true,NA,1,,007,9223372036854775808
-2,,1e3,False,,x y,two,,a,1
+3,3, 2.25 ,True,FALSE,None,3,NaN,12,2
"""
QUOTED = 'text,"a ""name"""\r\n"one, ""two""\nthree",x\r\n\r\n plain "quoted" ,"y"z\r\n"",last'

FILES = {
    "array.json": json.dumps(ROWS, indent=1),
    "flat_array.json": json.dumps(ROWS),
    "array_as.jsonl": json.dumps(ROWS),
    "lines.json": LINES,
    "lines.ndjson": LINES,
    "mark.jsonl": "\ufeff" + LINES,
    "mark.json": "\ufeff" + LINES,
    "one.json": json.dumps(ROWS[0]),
    "texts.json": json.dumps(["a", "b \"c\"", ""]),
    "field.json": json.dumps({"version": [1, {"rows": []}], "rows": ROWS, "after": None}, indent=2),
    "quoted.csv": QUOTED,
    "types.csv": TYPES,
    "mark.csv": "\ufefftext,b\nx,1\n",
    "header.csv": "a,a,,b\n1,2,3\n4,5,6,7\n",
    "one_column.csv": "text\n\na b\n  \n\"\"\nc,\n".replace("c,", "c"),
    "returns.csv": "text,n\ra,1\rb,2\r",
    "table.tsv": "text\tn\n\"a\tb\"\t1\nc, d\t2\n",
    "empty_cells.tsv": "text\tother\n\tx\na\t\n",
}
PACKED = {"packed.jsonl.gz": LINES, "packed.csv.gz": QUOTED, "packed_array.json.gz": json.dumps(ROWS, indent=1)}

INFOS = ("config.json", "dataset_infos.json")
CARD = "---\nlicense: mit\ntask_categories:\n- text-generation\nconfigs:\n{}size: x\n---\n# A card\nconfigs:\n- no\n"
DEFAULT = "- config_name: default\n  data_files:\n  - split: train\n    path: {}\n  - split: test\n    path: b/*.jsonl\n"
TREES = [
    {"paths": ["b.jsonl", "a.jsonl", "c/d.jsonl"]},
    {"paths": ["train.jsonl", "test.jsonl", "valid.jsonl", "other.jsonl"]},
    {"paths": ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl",
               "data/test-00000-of-00001.jsonl", "extra.jsonl"]},
    {"paths": ["data/train_sft-00000-of-00001.jsonl", "data/test_sft-00000-of-00001.jsonl"]},
    {"paths": ["train/a.jsonl", "train/b/c.jsonl", "dev/d.jsonl", "e.jsonl"]},
    {"paths": ["my_train_set/a.jsonl", "2-test/b.jsonl", "testing.jsonl"]},
    {"paths": ["en.train.json", "en.val.json", "training_2.json", "trainer.json"]},
    {"paths": ["contest.jsonl", "trained.jsonl", "attest/a.jsonl"]},
    {"paths": ["evaluation.jsonl", "test1.jsonl"]},
    {"paths": ["a.jsonl", "train/b.jsonl", "test.jsonl"]},
    {"paths": ["a.json", "b.jsonl", "c.ndjson"]},
    {"paths": ["a.jsonl", "script.py", "README.md", "LICENSE", ".hidden.jsonl", "__cache__/x.jsonl",
               "dataset_infos.json", "config.json"]},
    {"paths": ["a.jsonl", "b/c.jsonl"], "card": CARD.format(DEFAULT.format("a.jsonl"))},
    {"paths": ["a.jsonl", "b/c.jsonl", "d/e/f.jsonl", "d/g.jsonl"],
     "card": CARD.format(DEFAULT.format("\"d/**\""))},
    {"paths": ["a.jsonl", "b/c.jsonl", "d/e.jsonl"],
     "card": CARD.format(DEFAULT.format("\n    - \"d/*\"  # these\n    - a.jsonl"))},
    {"paths": ["a.jsonl", "b/c.jsonl"], "card": CARD.format("- config_name: en\n  data_files: \"a*\"\n")},
    {"paths": ["a.jsonl", "b/c.jsonl"],
     "card": CARD.format("- config_name: en\n  data_files: a.jsonl\n- config_name: de\n  data_files: b/c.jsonl\n")},
    {"paths": ["a.jsonl", "b/c.jsonl"],
     "card": CARD.format("- config_name: en\n  data_files: a.jsonl\n- config_name: de\n  default: true\n"
                         "  data_files:\n  - b/c.jsonl\n")},
    {"paths": ["en/train.jsonl", "en/test.jsonl", "train.jsonl"],
     "card": CARD.format("- config_name: en\n  data_dir: en\n")},
    {"paths": ["a.jsonl", "b.jsonl"],
     "card": CARD.format("- config_name: x\n  data_files:\n  - split: test\n    path: [a.jsonl, 'b.jsonl']\n")},
]
ONE = "- config_name: default\n  data_files: a.jsonl\n"
TWO = "- config_name: x\n  default: {}\n  data_files: a.jsonl\n- config_name: y\n  default: {}\n  data_files: b.jsonl\n"
SPLIT = "  - split: train\n    path: a.jsonl\n"
CONFIGS = [  # headers of cards for a.jsonl and b.jsonl
    "configs: # these\n- config_name: default # d\n  data_files: a.jsonl # see: e\n",
    "\"configs\":\n" + ONE, "'configs' : # c\n- config_name: 'default'\n  data_files: \"a.jsonl\"  # e\n",
    "configs :\n" + ONE, "configs:\n# c\n\n" + ONE, "configs: [\n" + ONE, "configs:\n" + ONE + "  x: {\n",
    "configs:\n", "configs: null\n", "configs: ~ # x\n", "configs: [] # x\n", "my_configs:\n" + ONE,
    "x: >\n  configs:\n  - config_name: default\n    data_files: b.jsonl\nconfigs:\n" + ONE,
    "configs: x\n", "configs:\n  x:\n    config_name: default\n    data_files: a.jsonl\n",
    *("configs:\n" + TWO.format(no, yes) for no, yes in
      [("false", "true"), ("False", "True"), ("no", "yes # z"), ("Off", "ON"), ("null", "Yes"), ("~", "TRUE"), ("", "on"),
       ("NO", "YES")]),
    "configs:\n" + TWO.format("yes", "true"),
    "configs:\n- config_name: x\n  default: yes\n  data_files: a.jsonl\n" + ONE,
    "configs:\n- config_name: default\n  data_files:\n" + SPLIT + SPLIT.replace("a.", "b."),
    "configs:\n- config_name: default\n  data_files:\n" + SPLIT + "    sep: x\n",
    "configs:\n- config_name: default\n  version: 1.0.0\n  description: some rows\n  data_files: a.jsonl\n",
]
TREES += [{"paths": ["a.jsonl", "b.jsonl"], "card": "---\nlicense: mit\n" + header + "size: x\n---\n# A card\n"}
          for header in CONFIGS]
TREES += [{"paths": ["a.jsonl", "b.jsonl"], "card": card}
          for card in ("\ufeff---\nconfigs:\n" + ONE + "---\n", "\n---\nconfigs:\n" + ONE + "---\n",
                       "---\n  size: x\n  configs:\n  - config_name: x\n    data_files: a.jsonl\n---\n",
                       "---\r\nconfigs:\r\n- config_name: x\r\n  data_files: a.jsonl\r\n---\r\n",
                       "# A card\n---\nconfigs:\n" + ONE + "---\n")]


def read_split(folder, cache):
    try:
        loaded = datasets.load_dataset(str(folder), cache_dir=cache)
    except (ValueError, yaml.YAMLError):
        return "refused"
    return list(loaded["train"]["text"]) if "train" in loaded else {"splits": sorted(loaded)}


def make_trees(cache):
    for tree in TREES:
        with tempfile.TemporaryDirectory() as name:
            for path in tree["paths"]:
                file = pathlib.Path(name) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("{}" if file.name in INFOS else json.dumps({"text": path}) + "\n")
            if "README.md" in tree["paths"]:
                (pathlib.Path(name) / "README.md").write_text("# A card\n")
            if "card" in tree:
                (pathlib.Path(name) / "README.md").write_bytes(tree["card"].encode())
            yield {**tree, "train": read_split(name, cache)}


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    datasets.disable_progress_bars()
    cache = tempfile.mkdtemp()
    for name, text in FILES.items():
        (out / name).write_bytes(text.encode())
    for name, text in PACKED.items():
        (out / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    (out / "packed_as.jsonl").write_bytes(gzip.compress(LINES.encode(), mtime=0))
    rows = {}
    for name in [*FILES, *PACKED, "packed_as.jsonl"]:
        options = {"field": "rows"} if name == "field.json" else {"sep": "\t"} if ".tsv" in name else {}
        kind = "csv" if ".csv" in name or ".tsv" in name else "json"
        rows[name] = list(datasets.load_dataset(kind, data_files=str(out / name), cache_dir=cache, split="train",
                                                **options))
    table = datasets.Dataset.from_list(ROWS)
    table.to_parquet(str(out / "rows.parquet"))
    rows["rows.parquet"] = list(datasets.load_dataset("parquet", data_files=str(out / "rows.parquet"), cache_dir=cache,
                                                      split="train"))
    table.save_to_disk(str(out / "saved"), num_shards=2)
    rows["saved"] = list(datasets.load_from_disk(str(out / "saved")))
    both = datasets.DatasetDict({"train": table.select([2, 0]), "test": table.select([1])})
    both.save_to_disk(str(out / "saved_splits"))
    rows["saved_splits"] = list(datasets.load_from_disk(str(out / "saved_splits"))["train"])
    rows["saved_splits/test"] = list(datasets.load_from_disk(str(out / "saved_splits"))["test"])
    arrow = "saved/data-00000-of-00002.arrow"
    rows[arrow] = list(datasets.load_dataset("arrow", data_files=str(out / arrow), cache_dir=cache, split="train"))
    (out / "rows.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    (out / "splits.json").write_text(json.dumps(list(make_trees(cache)), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
