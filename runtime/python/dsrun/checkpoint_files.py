"""Reads checkpoints without an engine: what ``deepspeed.utils.zero_to_fp32`` does.

save_checkpoint's folders hold checkpoints of dsrun (runtime/checkpoint/FORMAT.md).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import torch
from torch import nn

from . import _native
from .checkpoint_checks import check_tag
from .expert_ranks import take_own_experts
from .utils import logger

__all__ = ["convert_zero_checkpoint_to_fp32_state_dict",
           "get_fp32_state_dict_from_zero_checkpoint",
           "load_state_dict_from_zero_checkpoint"]

CLIENT_STATE, MANIFEST = "client_state.pt", "manifest.json"  # checkpoint_format/file_names.h
PROGRAM = "dsrun python"  # as engine_bindings.cc


def replace_file(path: Path, text: str) -> None:
    """Writes the file, which is at no time incomplete."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def make_folder(path: Path) -> None:
    """Makes the folder and those above it; raises OSError with a sentence if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"save_checkpoint cannot make the folder {path}: {error.strerror}") from error


def save_with_client_state(native: _native.Engine, folder: Path, client: dict, frozen: bool) -> None:
    """Saves an engine's state to the folder, with `client` of rank 0 in the same move. Collective."""
    failure = None

    def write(path: str) -> str:
        nonlocal failure
        try:
            with open(path, "wb") as file:
                torch.save(client, file)
                file.flush()
                os.fsync(file.fileno())
        except Exception as error:
            failure = error
            return f"{CLIENT_STATE}: {type(error).__name__}: {error}"
        return ""

    try:
        native.save(str(folder), write, frozen=frozen)
    except RuntimeError:
        if failure is None:
            raise
        raise failure from None
    except KeyError as error:
        raise FileNotFoundError(f"{error.args[0]}: all ranks have to see the folder {folder}") from None


def resolve_latest(folder: Path) -> Path:
    """Returns the folder that the file `latest` in a folder names, by its first line.

    Raises RuntimeError if it names none.
    """
    path = folder / "latest"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: give the tag of a checkpoint")
    name = path.read_bytes().split(b"\n")[0].decode(errors="replace").strip()
    if name in ("", ".", "..") or "\0" in name or not (folder / name).is_dir():
        raise RuntimeError(f"{path} is damaged: it names {name[:40]!r}, which is no folder of {folder}. "
                           "Load an earlier checkpoint, by its tag, or write a folder's name to it")
    return folder / name


def _list_tags(root: Path) -> str:
    tags = sorted(path.name for path in root.glob("*") if (path / "latest").is_file())
    return f"; the tags in {root} are {_list_some(tags)}" if tags else ""


def find_checkpoint(root: Path, tag: str | None) -> tuple[Path, Path]:
    """Returns the folder of the tag (without one, the one that `latest` names), and the checkpoint.

    These are the same for a folder of dsrun itself, such as checkpoints/step-20. Raises
    FileNotFoundError without a checkpoint there.
    """
    tagged = resolve_latest(root) if tag is None else root / check_tag(tag)
    if not tagged.is_dir():
        raise FileNotFoundError(f"there is no checkpoint {tagged}{_list_tags(root)}")
    folder = resolve_latest(tagged) if (tagged / "latest").is_file() else tagged
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint of dsrun: it has no {MANIFEST}")
    return tagged, folder


def describe_content(folder: Path) -> str:
    """Returns what differs between two checkpoints, wherever they are."""
    checksum = (folder / MANIFEST).read_bytes()[-40:].decode(errors="replace")
    client = folder / CLIENT_STATE
    return f"{folder.name} {checksum} {client.stat().st_size if client.is_file() else 0}"


def read_client_state(folder: Path) -> dict:
    """Returns what save_checkpoint has written into a checkpoint beside the engine's state.

    Checkpoints of `dsrun train`, and of other C++ programs, have no such file. Raises RuntimeError if
    the file is damaged. Objects of classes that cannot be imported raise the error of the import.
    """
    path = folder / CLIENT_STATE
    if not path.is_file():
        program = json.loads((folder / MANIFEST).read_text()).get("written_by", {}).get("program")
        if program == PROGRAM:
            raise FileNotFoundError(f"there is no {path}, which engine.save_checkpoint has written to "
                                    f"{folder}. Load another one, by its tag")
        return {"client_state": {}, "lr_scheduler": {}, "rates": None,
                "written_by": program or "another program"}
    try:
        client = torch.load(path, map_location="cpu", weights_only=False)
        if not {"client_state", "lr_scheduler", "rates"} <= client.keys():
            raise ValueError("it has other contents")
    except (ImportError, AttributeError):
        raise
    except Exception as error:
        raise RuntimeError(f"{path} is damaged ({type(error).__name__}: {error}): load an earlier "
                           "checkpoint, by its tag") from error
    return client


def _folder_of(checkpoint_dir, tag: str | None) -> Path:
    root = Path(checkpoint_dir)
    if tag is None and not (root / "latest").is_file():
        raise ValueError(f"{root / 'latest'} does not exist: give the tag of a checkpoint")
    return find_checkpoint(root, tag)[1]


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: str | os.PathLike, tag: str | None = None,
                                             exclude_frozen_parameters: bool = False,
                                             lazy_mode: bool = False) -> dict[str, torch.Tensor]:
    """Returns the fp32 weights and the buffers that engine.save_checkpoint saved.

    Of tied parameters it has the first name. `lazy_mode` is accepted; the tensors are read at once.
    Raises RuntimeError if a file is damaged.
    """
    if exclude_frozen_parameters:
        raise NotImplementedError("exclude_frozen_parameters: checkpoints do not say which "
                                  "parameters are frozen")
    return _native.read_weights(str(_folder_of(checkpoint_dir, tag)))


def load_state_dict_from_zero_checkpoint(model: nn.Module, checkpoint_dir: str | os.PathLike,
                                         tag: str | None = None) -> nn.Module:
    """Loads the fp32 weights into the model, on the CPU, and returns it.

    The model is not to be trained by an engine: engine.load_checkpoint loads into that. Weights that
    only one side has are left alone, with a warning; raises ValueError if all are.
    """
    model = model.cpu()
    state = take_own_experts(model, get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag))
    result = model.load_state_dict(state, strict=False)
    # Of tied parameters the checkpoint has one name.
    tied = {id(parameter) for name, parameter in model.named_parameters(remove_duplicate=False)
            if name in state}
    missing = [name for name, parameter in model.named_parameters() if id(parameter) not in tied]
    unexpected = list(result.unexpected_keys)
    if len(unexpected) == len(state):
        raise ValueError(f"{checkpoint_dir} has no weight of the model: it has {_list_some(unexpected)}, "
                         f"and the model {_list_some(missing)}")
    for names, sentence in ((missing, "the checkpoint has not"), (unexpected, "the model has not")):
        if names:
            logger.warning("load_state_dict_from_zero_checkpoint leaves out weights that %s: %s",
                           sentence, _list_some(names))
    return model


def _list_some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _parse_size(size: int | str | None) -> float:
    """Returns the bytes of a size such as "5GB" (10^9 bytes each); None is no limit."""
    if size is None:
        return float("inf")
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"([0-9.]+) *([KMGT]?)B", size.upper())
    if found is None:
        raise ValueError(f'max_shard_size={size!r}: give bytes, or a text such as "5GB"')
    return float(found[1]) * 1000 ** " KMGT".index(found[2] or " ")


def _divide(state: dict[str, torch.Tensor], limit: float) -> list[dict[str, torch.Tensor]]:
    """Divides the tensors, in their order, into parts of at most `limit` bytes, if none is larger."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    used = 0
    for name, tensor in state.items():
        if parts[-1] and used + tensor.nbytes > limit:
            parts.append({})
            used = 0
        parts[-1][name] = tensor
        used += tensor.nbytes
    return parts


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir: str | os.PathLike,
                                               output_dir: str | os.PathLike,
                                               max_shard_size: int | str | None = "5GB",
                                               safe_serialization: bool = False, tag: str | None = None,
                                               exclude_frozen_parameters: bool = False) -> None:
    """Writes the fp32 weights to pytorch_model.bin, or model.safetensors, in the folder output_dir.

    Above max_shard_size they are several files, with an index, as transformers loads them.
    `safe_serialization` needs the package safetensors.
    """
    if safe_serialization:
        from safetensors.torch import save_file
    state = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, exclude_frozen_parameters)
    parts = _divide(state, _parse_size(max_shard_size))
    stem, ending = ("model", "safetensors") if safe_serialization else ("pytorch_model", "bin")
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{stem}.{ending}"]
    if len(parts) > 1:
        names = [f"{stem}-{i:05d}-of-{len(parts):05d}.{ending}" for i in range(1, len(parts) + 1)]
        index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in state.values())},
                 "weight_map": {key: name for name, part in zip(names, parts) for key in part}}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / f"{stem}.{ending}.index.json").write_text(text, encoding="utf-8")
    for name, part in zip(names, parts):
        tensors = {key: tensor.contiguous() for key, tensor in part.items()}
        if safe_serialization:
            save_file(tensors, folder / name, metadata={"format": "pt"})
        else:
            torch.save(tensors, folder / name)
