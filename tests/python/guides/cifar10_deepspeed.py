"""The loop of DeepSpeed's CIFAR-10 tutorial, on random pictures; with --moe that of its tutorial of experts."""

import argparse
import json

import deepspeed
import torch
import torch.nn as nn
import torch.nn.functional as F
from deepspeed.accelerator import get_accelerator
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer


def add_argument():
    parser = argparse.ArgumentParser(description="CIFAR")
    parser.add_argument("-e", "--epochs", default=2, type=int)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--dtype", default="fp32", type=str, choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--stage", default=0, type=int, choices=[0, 1, 2, 3])
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--moe", action="store_true")
    parser.add_argument("--ep-world-size", default=1, type=int)
    parser.add_argument("--num-experts", type=int, nargs="+", default=[1], help="one number for each layer")
    parser.add_argument("--mlp-type", type=str, default="standard", choices=["standard", "residual"])
    parser.add_argument("--top-k", default=1, type=int)
    parser.add_argument("--min-capacity", default=0, type=int)
    parser.add_argument("--noisy-gate-policy", default=None, type=str, choices=["RSample", "Jitter"])
    parser.add_argument("--moe-param-group", action="store_true")
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def get_ds_config(args):
    return {
        "train_batch_size": 16,
        "steps_per_print": 2000,
        "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8,
                                                 "weight_decay": 3e-7}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001,
                                                     "warmup_num_steps": 10}},
        "gradient_clipping": 1.0,
        "prescale_gradients": False,
        "bf16": {"enabled": args.dtype == "bf16"},
        "fp16": {"enabled": args.dtype == "fp16"},
        "wall_clock_breakdown": False,
        "zero_optimization": {
            "stage": args.stage, "allgather_partitions": True, "reduce_scatter": True,
            "allgather_bucket_size": 50000000, "reduce_bucket_size": 50000000, "overlap_comm": True,
            "contiguous_gradients": True, "cpu_offload": False}}


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randn(count, 3, 32, 32, generator=generator)
        self.labels = (self.pictures.mean(dim=(1, 2, 3)) > 0).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.moe = args.moe
        if args.moe:
            self.moe_layer_list = nn.ModuleList([
                MoE(hidden_size=84, expert=nn.Linear(84, 84), num_experts=experts, ep_size=args.ep_world_size,
                    use_residual=args.mlp_type == "residual", k=args.top_k, min_capacity=args.min_capacity,
                    noisy_gate_policy=args.noisy_gate_policy)
                for experts in args.num_experts])
            self.fc4 = nn.Linear(84, 10)
        else:
            self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        if self.moe:
            for layer in self.moe_layer_list:
                x, _, _ = layer(x)
            return self.fc4(x)
        return self.fc3(x)


def create_moe_param_groups(model):
    return split_params_into_different_moe_groups_for_optimizer(
        {"params": list(model.parameters()), "name": "parameters"})


def test(model_engine, testset, local_device, target_dtype):
    loader = torch.utils.data.DataLoader(testset, batch_size=8, shuffle=False)
    correct = 0
    model_engine.eval()
    with torch.no_grad():
        for images, labels in loader:
            images = images.to(local_device)
            if target_dtype is not None:
                images = images.to(target_dtype)
            outputs = model_engine(images)
            correct += (outputs.argmax(dim=1) == labels.to(local_device)).sum().item()
    if model_engine.local_rank == 0:
        print("LOG", json.dumps({"correct": correct}), flush=True)


def main(args):
    deepspeed.init_distributed()
    torch.manual_seed(args.seed)
    trainset, testset = Pictures(72, seed=1), Pictures(16, seed=2)
    net = Net(args)
    parameters = filter(lambda p: p.requires_grad, net.parameters())
    if args.moe_param_group:
        parameters = create_moe_param_groups(net)
    model_engine, optimizer, trainloader, __ = deepspeed.initialize(
        args=args, model=net, model_parameters=parameters, training_data=trainset,
        config=get_ds_config(args))
    local_device = get_accelerator().device_name(model_engine.local_rank)
    local_rank = model_engine.local_rank
    target_dtype = None
    if model_engine.bfloat16_enabled():
        target_dtype = torch.bfloat16
    elif model_engine.fp16_enabled():
        target_dtype = torch.half
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        running_loss = 0.0
        for i, data in enumerate(trainloader):
            inputs, labels = data[0].to(local_device), data[1].to(local_device)
            if target_dtype is not None:
                inputs = inputs.to(target_dtype)
            outputs = model_engine(inputs)
            loss = criterion(outputs, labels)
            model_engine.backward(loss)
            model_engine.step()
            running_loss += loss.item()
            if local_rank == 0 and i % args.log_interval == args.log_interval - 1:
                print("LOG", json.dumps({"epoch": epoch, "step": i, "loss": running_loss / args.log_interval,
                                         "lr": optimizer.param_groups[0]["lr"]}), flush=True)
                running_loss = 0.0
    test(model_engine, testset, local_device, target_dtype)


if __name__ == "__main__":
    main(add_argument())
