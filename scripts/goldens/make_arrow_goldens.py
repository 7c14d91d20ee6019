#!/usr/bin/env python3
"""Makes tests/unit/tokenizer/arrow_goldens with pyarrow: small files of every format and kind of column.

    python scripts/goldens/make_arrow_goldens.py tests/unit/tokenizer/arrow_goldens

Needs pyarrow 26. rows.jsonl has the rows of kinds.parquet, as Python's json writes them.
"""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

ROWS = [
    {"text": "grüße\n\"zwei\" 語", "large": "a", "coded": "x", "n": 1, "u": 2**63, "x": 0.5, "yes": True,
     "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}], "none": None},
    {"text": "", "large": "b", "coded": "y", "n": -2, "u": 0, "x": -1.25, "yes": False, "messages": [], "none": None},
    {"text": None, "large": None, "coded": "x", "n": None, "u": None, "x": None, "yes": None, "messages": None,
     "none": None},
]
CHATS = [[{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": f"b {i}"}] for i in range(5)]


def kinds():
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {"text": pa.string(), "large": pa.large_string(), "coded": pa.dictionary(pa.int8(), pa.string()),
               "n": pa.int32(), "u": pa.uint64(), "x": pa.float64(), "yes": pa.bool_(), "messages": pa.list_(message),
               "none": pa.null()}
    return pa.table({name: pa.array([row[name] for row in ROWS], kind) for name, kind in columns.items()})


# Objects that differ between rows, as `datasets` 5 stores them.
OBJECTS = [{"messages": CHATS[0], "tools": [{"name": "weather", "parameters": {"city": {"type": "string"}}}], "kwargs": {"mode": "brief"}},
           {"messages": CHATS[1], "tools": [{"name": "host", "parameters": {"n": [1, None, "\u00fc"]}}], "kwargs": None}]


def objects():
    """The objects in the extension type arrow.json, and two columns of kinds that JSON has not."""
    as_json = lambda value: None if value is None else json.dumps(value)
    tool = pa.struct([("name", pa.string()), ("parameters", pa.string())])
    stored = pa.array([[{**each, "parameters": as_json(each["parameters"])} for each in row["tools"]] for row in OBJECTS], pa.list_(tool))
    of_json = pa.struct([("name", pa.string()), ("parameters", pa.json_())])
    structs = pa.StructArray.from_arrays(
        [stored.values.field(0), pa.ExtensionArray.from_storage(pa.json_(), stored.values.field(1))], fields=list(of_json))
    return pa.table({"messages": [row["messages"] for row in OBJECTS], "tools": pa.ListArray.from_arrays(stored.offsets, structs),
                     "kwargs": pa.ExtensionArray.from_storage(pa.json_(), pa.array([as_json(row["kwargs"]) for row in OBJECTS])),
                     "when": pa.array([0, 1], pa.timestamp("us")), "raw": pa.array([b"a", b"b"])})


def main():
    out = pathlib.Path(sys.argv[1])
    table = kinds()
    (out / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS))
    pq.write_table(table, out / "kinds.parquet", row_group_size=2, compression="zstd")
    pyarrow.feather.write_feather(table, out / "kinds.feather", compression="lz4")
    with pa.OSFile(str(out / "kinds.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (out / "objects.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in OBJECTS))
    pq.write_table(objects(), out / "objects.parquet")
    with pa.OSFile(str(out / "objects.arrow"), "wb") as sink, pa.ipc.new_stream(sink, objects().schema) as writer:
        writer.write_table(objects())
    deep = pa.array(["[" * 200_000 + "]" * 200_000])
    pq.write_table(pa.table({"text": ["a"], "deep": pa.ExtensionArray.from_storage(pa.json_(), deep)}), out / "deep.parquet", compression="zstd")
    # One row whose text is JSON between others whose text was cut off, is nested without end, has a key twice, or is empty.
    cells = ['{"mode": "brief"}', '{"mode": "bri', "[" * 200 + "]" * 200, '{"a": 1, "a": 2}', ""]
    damaged = pa.ExtensionArray.from_storage(pa.json_(), pa.array(cells))
    pq.write_table(pa.table({"messages": CHATS, "chat_template_kwargs": damaged}), out / "damaged_json.parquet")
    chats = pa.table({"messages": CHATS})
    pq.write_table(chats, out / "chats.parquet", row_group_size=2, compression="snappy")


if __name__ == "__main__":
    main()
