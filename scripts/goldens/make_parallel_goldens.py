#!/usr/bin/env python3
"""Makes tests/numerics/goldens/parallel.json: how PyTorch's tensor parallelism and DeepSpeed's pipeline train the Llama there.

    python scripts/goldens/make_parallel_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5 and deepspeed 0.19.8 from PyPI, and the folder that make_transformers_goldens.py has made. Each run
is of two processes over gloo, of twenty steps of AdamW on the samples of that script:

  dtensor   transformers' LlamaForCausalLM, its layers cut by torch.distributed.tensor.parallel: colwise, rowwise
  pipeline  DeepSpeed's PipelineModule of its layers, two stages, four micro-batches a step; without
            clipping, which its stages do each by a norm of its own

with the loss of each step, and, of the first, the gradient norm before clipping.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import numpy
import torch
import torch.multiprocessing
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_transformers_goldens import DS_CONFIG, SEQ_LEN, STEPS, batch_of, loss_of

RANKS = 2
BATCH = 8
MICRO_BATCHES = 4


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "llama", dtype=torch.float32, attn_implementation="eager")
    model.train()
    return model


def train_dtensor(folder, tokens):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    model = load(folder)
    colwise, rowwise = ColwiseParallel, RowwiseParallel
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "self_attn.q_proj": colwise(), "self_attn.k_proj": colwise(), "self_attn.v_proj": colwise(),
            "self_attn.o_proj": rowwise(), "mlp.gate_proj": colwise(), "mlp.up_proj": colwise(),
            "mlp.down_proj": rowwise()})
    params = DS_CONFIG["optimizer"]["params"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=params["lr"], betas=params["betas"], eps=params["eps"],
                                  weight_decay=params["weight_decay"], foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        loss = loss_of(model, *batch_of(tokens, step * BATCH, BATCH))
        loss.backward()
        squares = 0.0
        gradients = [parameter.grad for parameter in model.parameters()]
        for gradient in gradients:
            whole = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
            squares += whole.double().square().sum().item()
        norm = squares ** 0.5
        for gradient in gradients:
            gradient.mul_(min(1.0, DS_CONFIG["gradient_clipping"] / (norm + 1e-6)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        norms.append(norm)
    return {"losses": losses, "grad_norms": norms}


class First(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed = model.model.embed_tokens

    def forward(self, ids):
        return self.embed(ids)


class Middle(torch.nn.Module):
    """A layer that makes its angles and its mask itself, for only activations go from stage to stage."""

    def __init__(self, model, number):
        super().__init__()
        self.layer = model.model.layers[number]
        self.angles = model.model.rotary_emb

    def forward(self, hidden):
        length = hidden.shape[1]
        places = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        out = self.layer(hidden, attention_mask=mask, position_ids=places,
                         position_embeddings=self.angles(hidden, places))
        return out[0] if isinstance(out, tuple) else out


class Last(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.norm, self.head = model.model.norm, model.lm_head

    def forward(self, hidden):
        return self.head(self.norm(hidden))


def train_pipeline(folder, tokens):
    import deepspeed
    from deepspeed.pipe import PipelineModule

    deepspeed.init_distributed(dist_backend="gloo")
    model = load(folder)
    layers = [First(model), *(Middle(model, i) for i in range(len(model.model.layers))), Last(model)]
    module = PipelineModule(
        layers=layers, num_stages=RANKS, partition_method="uniform",
        loss_fn=lambda logits, labels: torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    engine, _, _, _ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config={
        "train_micro_batch_size_per_gpu": BATCH // MICRO_BATCHES,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "optimizer": {"type": "AdamW", "params": {**DS_CONFIG["optimizer"]["params"], "torch_adam": True}},
        "gradient_clipping": 0.0,
        "steps_per_print": 1000000,
    })
    losses = []
    for step in range(STEPS):
        first = step * BATCH
        size = BATCH // MICRO_BATCHES
        batches = iter([batch_of(tokens, first + i * size, size) for i in range(MICRO_BATCHES)])
        losses.append(engine.train_batch(data_iter=batches).item())
    return {"micro_batches": MICRO_BATCHES, "losses": losses}


RUNS = {"dtensor": train_dtensor, "pipeline": train_pipeline}


def run_rank(rank, name, folder, port, queue):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_SIZE=str(RANKS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    tokens = numpy.fromfile(folder / "tokens.bin", dtype="<u2")
    result = RUNS[name](folder, tokens)
    if rank == 0:
        queue.put(result)


def main():
    folder = pathlib.Path(sys.argv[1])
    context = torch.multiprocessing.get_context("spawn")
    golden = {"torch": torch.__version__, "seq_len": SEQ_LEN, "batch": BATCH}
    for i, name in enumerate(RUNS):
        queue = context.Queue()
        ranks = [context.Process(target=run_rank, args=(rank, name, folder, 29641 + i, queue)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        golden[name] = queue.get()
        for rank in ranks:
            rank.join()
    (folder / "parallel.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
