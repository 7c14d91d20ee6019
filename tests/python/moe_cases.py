"""Layers of experts alone, and models with them in training, for symbols_test.py.

    moe_cases.py ENGINE                       with ENGINE dsrun or deepspeed, on every rank

Prints a record per case. Random numbers are PyTorch's: the seeds make both engines draw the same.
"""

import torch
from records import ENGINE, RANK, WORLD, log

import deepspeed
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from torch import nn

WIDTH, TOKENS = 4, 12
LAYERS = {
    "k=1": dict(use_rts=False),
    "k=1 random": dict(),
    "k=1 few places": dict(capacity_factor=0.7, min_capacity=1),
    "k=1 RSample": dict(noisy_gate_policy="RSample", capacity_factor=0.9, min_capacity=2),
    "k=1 Jitter": dict(noisy_gate_policy="Jitter"),
    "k=1 all": dict(drop_tokens=False),
    "k=1 used": dict(used=7, use_rts=False),
    "k=1 evaluation": dict(eval_capacity_factor=0.5, min_capacity=1, noisy_gate_policy="RSample",
                           use_rts=False, train=False),
    "k=2": dict(k=2, min_capacity=1, capacity_factor=0.6),
    "k=2 all": dict(k=2, drop_tokens=False),
    "k=2 without sampling": dict(k=2, top2_2nd_expert_sampling=False, capacity_factor=0.7,
                                 min_capacity=1),
    "k=3": dict(k=3, capacity_factor=0.5, min_capacity=2),
    "k=3 all": dict(k=3, drop_tokens=False),
    "k=4 evaluation": dict(k=4, eval_capacity_factor=0.4, min_capacity=1, train=False),
    "residual": dict(k=2, use_residual=True, min_capacity=1),
    "bf16": dict(k=2, capacity_factor=0.8, min_capacity=1, dtype=torch.bfloat16),
}


class WithBias(nn.Module):
    """As Megatron's layers, it returns the bias apart."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(x), self.linear.bias


def checksum(tensor):
    values = tensor.detach().double().flatten()
    return (values * torch.cos(torch.arange(len(values)).double())).sum().item()


def run_layer(name, used=None, train=True, dtype=torch.float32, **options):
    torch.manual_seed(3)
    expert = WithBias() if "random" in name else nn.Linear(WIDTH, WIDTH)
    layer = MoE(WIDTH, expert, num_experts=4, **options).train(train)
    with torch.no_grad():  # experts begin as copies of one another
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    if layer.ep_size > 1:
        layer.set_deepspeed_parallelism()
        tell_experts_apart(layer)
        torch.manual_seed(50 + RANK)
    layer.to(dtype)
    x = torch.randn(2, TOKENS // 2, WIDTH).to(dtype).requires_grad_()
    mask = None if used is None else (torch.arange(TOKENS) < used).long()
    output, l_aux, counts = layer(x, mask)
    (checksum_of(output) + l_aux).backward()
    log(f"layer {name}", output=output.flatten().tolist(), l_aux=l_aux.item(),
        counts=counts.tolist(), input_grad=checksum(x.grad),
        **{name: checksum(p.grad) for name, p in layer.named_parameters() if p.grad is not None})


def tell_experts_apart(model, data_first=False):
    """Moves each expert's weights by random numbers that depend on its index among all experts."""
    for layer in model.modules():
        if not isinstance(layer, MoE):
            continue
        part = RANK // (WORLD // layer.ep_size) if data_first else RANK % layer.ep_size
        first = layer.num_local_experts * part
        for index, expert in enumerate(layer.deepspeed_moe.experts.deepspeed_experts, first):
            generator = torch.Generator().manual_seed(index)
            for parameter in expert.parameters():
                parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def checksum_of(output):
    values = output.float().flatten()
    return (values * torch.cos(torch.arange(len(values)).float())).sum()


class Model(nn.Module):
    def __init__(self, ep_size=1, num_experts=3):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.first = MoE(8, nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8)),
                         num_experts=4, noisy_gate_policy="RSample", min_capacity=2,
                         ep_size=ep_size)
        self.second = MoE(8, nn.Linear(8, 8), num_experts=num_experts, k=2, use_residual=True,
                          ep_size=ep_size)
        self.head = nn.Linear(8, 16)

    def forward(self, tokens):
        x = self.embedding(tokens)
        y, l_aux, _ = self.first(x)
        z, l_aux2, _ = self.second(x + y)
        logits = self.head(x + y + z).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, tokens.roll(-1, 1).flatten())
        return loss + 0.05 * (l_aux + l_aux2)


def train(stage, grouped, ep_size=1):
    torch.manual_seed(5)
    model = Model() if ep_size == 1 else Model(ep_size, num_experts=4)
    # A gate between two experts that are copies has no gradient but rounding, of which Adam takes the sign.
    tell_experts_apart(model)
    parameters = [{"params": list(model.parameters()), "name": "all", "weight_decay": 0.1}]
    if grouped:
        parameters = split_params_into_different_moe_groups_for_optimizer(parameters)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=parameters if grouped else model.parameters(),
        config={"train_micro_batch_size_per_gpu": 2,
                # At stage 0 DeepSpeed clips by the mean of norms that have a rank's own experts.
                "gradient_clipping": 0.0 if stage == 0 and ep_size > 1 else 0.5,
                "gradient_accumulation_steps": 2, "zero_optimization": {"stage": stage},
                "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True,
                "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.1,
                                                          "torch_adam": True}}})
    torch.manual_seed(100 + RANK)
    losses, norms = [], []
    for step in range(4):
        for micro in range(2):
            loss = engine(torch.randint(16, (2, 8)))
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        if stage > 0:  # DeepSpeed has none at stage 0
            norms.append(float(engine.get_global_grad_norm()))
    engine.destroy()
    return losses, norms


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    if WORLD == 1:
        for name, options in LAYERS.items():
            run_layer(name, **options)
    elif WORLD == 2:
        for name, options in LAYERS.items():
            run_layer(f"{name}, 2 ranks", ep_size=2, **options)
    # DeepSpeed has no experts at stage 3: its losses at stage 2 are expected there.
    for stage in [0, 1, 2] + [3] * (ENGINE == "dsrun"):
        for grouped in (False, True) if WORLD <= 2 else ():
            losses, norms = train(stage, grouped)
            log(f"training, stage {stage}{' grouped' * grouped}", losses=losses, norms=norms)
        if WORLD > 1:
            losses, norms = train(stage, grouped=True, ep_size=2)
            log(f"training, stage {stage}, experts apart", losses=losses, norms=norms)


if __name__ == "__main__":
    main()
