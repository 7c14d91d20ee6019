"""Reads checkpoints without an engine: what ``deepspeed.utils.zero_to_fp32`` does.

save_checkpoint's folders hold checkpoints of dsrun (runtime/checkpoint/FORMAT.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from . import _native

__all__ = ["get_fp32_state_dict_from_zero_checkpoint", "load_state_dict_from_zero_checkpoint"]

_CHUNK = 4 << 20  # bytes that a checksum covers
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
           "float64": torch.float64, "int64": torch.int64, "int32": torch.int32,
           "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool}


def _folder_of(checkpoint_dir, tag: str | None) -> Path:
    root = Path(checkpoint_dir)
    if tag is None:
        latest = root / "latest"
        if not latest.is_file():
            raise ValueError(f"{latest} does not exist: give the tag of a checkpoint")
        tag = latest.read_text().splitlines()[0].strip()
    tagged = root / str(tag)
    if not tagged.is_dir():
        raise FileNotFoundError(f"there is no checkpoint {tagged}")
    if not (tagged / "latest").is_file():  # a folder of dsrun itself: checkpoints/step-20
        return tagged
    return tagged / (tagged / "latest").read_text().splitlines()[0].strip()


def _read_manifest(folder: Path) -> dict:
    path = folder / "manifest.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: {folder} is no checkpoint of dsrun")
    text = path.read_bytes()
    manifest = json.loads(text)
    if manifest.get("version") != 2:
        raise NotImplementedError(f"{path} has version {manifest.get('version')} of the format; "
                                  "this reads version 2")
    if int(manifest["crc32c"], 16) != _native.crc32c(text[:text.rindex(b'\n"crc32c"')]):
        raise ValueError(f"{path} is damaged: its checksum differs")
    return manifest


def _read_shard(folder: Path, name: str, shard: dict) -> bytes:
    if "box" in shard:
        raise NotImplementedError(f"{name} is stored in boxes, by tensor parallelism: load the "
                                  "checkpoint with dsrun resume")
    path = folder / shard["file"]
    with path.open("rb") as file:
        file.seek(shard["offset"])
        data = file.read(shard["length"])
    sums = shard["crc32c"]
    found = "".join(f"{_native.crc32c(data[first:first + _CHUNK]):08x}"
                    for first in range(0, len(data), _CHUNK))
    if len(data) != shard["length"] or found != sums:
        raise ValueError(f"{path} is damaged: the checksum of {name} differs")
    return data


def _read_tensor(folder: Path, tensor: dict) -> torch.Tensor:
    values = torch.empty(tensor["shape"], dtype=_DTYPES[tensor["dtype"]])
    flat = values.view(-1)
    for shard in tensor["shards"]:
        if shard["count"] == 0:
            continue
        data = bytearray(_read_shard(folder, tensor["name"], shard))
        flat[shard["start"]:shard["start"] + shard["count"]] = torch.frombuffer(
            data, dtype=values.dtype)
    return values


def get_fp32_state_dict_from_zero_checkpoint(
        checkpoint_dir, tag: str | None = None, exclude_frozen_parameters: bool = False,
        lazy_mode: bool = False) -> dict[str, torch.Tensor]:
    """Returns the fp32 weights and the buffers that engine.save_checkpoint saved.

    Of tied parameters it has the first name. `lazy_mode` is accepted; the tensors are read at once.
    Raises ValueError if a file is damaged.
    """
    if exclude_frozen_parameters:
        raise NotImplementedError("exclude_frozen_parameters: checkpoints do not say which "
                                  "parameters are frozen")
    folder = _folder_of(checkpoint_dir, tag)
    tensors = _read_manifest(folder)["tensors"]
    names = {tensor["name"] for tensor in tensors}
    # Optimizer state is named NAME/exp_avg.
    return {tensor["name"]: _read_tensor(folder, tensor) for tensor in tensors
            if tensor["name"].rpartition("/")[0] not in names}


def load_state_dict_from_zero_checkpoint(model: nn.Module, checkpoint_dir,
                                         tag: str | None = None) -> nn.Module:
    """Loads the fp32 weights into the model, on the CPU, and returns it.

    The model is not to be trained by an engine: engine.load_checkpoint loads into that.
    """
    model = model.cpu()
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag),
                          strict=False)
    return model
