"""DeepSpeed's ``deepspeed.moe``: layers that send each token to k of many experts.

    layer = dsrun.moe.MoE(hidden_size, expert=torch.nn.Linear(hidden_size, hidden_size),
                          num_experts=8, k=2)
    output, l_aux, exp_counts = layer(hidden_states)
    loss = loss + 0.01 * l_aux

The gate scores the tokens in fp32. Each expert has places for `capacity` tokens, which is
ceil(k * tokens / num_experts * capacity_factor), at least `min_capacity`; tokens that find none
are dropped: their output is zero. With drop_tokens=False the capacity grows with the fullest
expert. Random numbers are PyTorch's, drawn in DeepSpeed's order: both give the same with one seed.

With ep_size=1, each rank has all experts; ZeRO divides their state as that of every parameter. With
ep_size=N, N ranks have all experts together, num_experts / N each: tokens travel to the ranks of
their experts and back. Gates drop by a rank's own tokens, so ep_size changes no route. The ranks
are divided by initialize(), or by layer.set_deepspeed_parallelism() for a layer without an engine.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import groups
from .expert_ranks import agree_on_capacity, exchange
from .utils import logger

__all__ = ["Experts", "MOELayer", "MoE", "TopKGate", "configure_moe_param_groups",
           "has_moe_layers", "is_moe_param", "is_moe_param_group",
           "split_params_grads_into_shared_and_expert_params",
           "split_params_into_different_moe_groups_for_optimizer",
           "split_params_into_shared_and_expert_params", "top1gating", "top2gating", "topkgating"]

_POLICIES = (None, "None", "Jitter", "RSample")


class Routes(NamedTuple):
    """Where S tokens go, each to k experts."""

    l_aux: Tensor  # the loss that balances the experts
    capacity: int  # places of an expert
    num_experts: int
    experts: Tensor  # [k, S], int32; -1: dropped
    places: Tensor  # [k, S], int32, below capacity where the token is not dropped
    weights: Tensor  # [k, S], of the experts' outputs
    exp_counts: Tensor  # [num_experts], tokens that chose the expert, also those that are dropped

    def slots(self) -> Tensor:
        """[k, S]: indices into the experts' places, one behind the last for dropped tokens."""
        slots = self.experts.long() * self.capacity + self.places.long()
        return slots.masked_fill(self.experts < 0, self.num_experts * self.capacity)

    def as_matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(l_aux, weights of [S, num_experts, capacity], whether they are not 0, exp_counts)."""
        size = self.num_experts * self.capacity
        flat = self.weights.new_zeros(self.weights.shape[1], size + 1)
        flat = flat.scatter(1, self.slots().t(), self.weights.t())[:, :size]
        weights = flat.reshape(-1, self.num_experts, self.capacity)
        return self.l_aux, weights, weights.bool(), self.exp_counts


def _uniform(low: float, high: float, like: Tensor) -> Tensor:
    bounds = (torch.tensor(bound, dtype=torch.float32, device=like.device) for bound in (low, high))
    return torch.distributions.Uniform(*bounds).rsample(like.shape)


def _gumbel(like: Tensor) -> Tensor:
    zero, one = (torch.tensor(value, device=like.device) for value in (0.0, 1.0))
    return torch.distributions.Gumbel(zero, one).rsample(like.shape)


def _jitter(values: Tensor, epsilon: float = 1e-2) -> Tensor:
    return values * _uniform(1.0 - epsilon, 1.0 + epsilon, values)


def _capacity(gates: Tensor, factor: float, least: int) -> int:
    tokens, experts = gates.shape
    # In fp32, as DeepSpeed: 11.0000002 places are 12.
    wanted = torch.ceil((tokens / experts) * torch.tensor(factor, dtype=torch.float32))
    return max(int(wanted), least)


def _choice(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(index [S], mask [S, experts]) of each token's best expert."""
    best = torch.argmax(scores, dim=1)
    return best, F.one_hot(best, num_classes=scores.shape[1])


def _first_choice_overlap(gates: Tensor, mask: Tensor) -> Tensor:
    """The mean gate of each expert times its share of the tokens."""
    return gates.mean(dim=0) * mask.float().mean(dim=0)


def _of_tokens(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(dim=1)


def _kept(experts: Tensor, mask: Tensor) -> Tensor:
    return experts.masked_fill(~mask.any(dim=1), -1)


def _route_to_one(logits: Tensor, capacity_factor: float, min_capacity: int,
                  used_token: Tensor | None, noisy_gate_policy: str | None, drop_tokens: bool,
                  use_rts: bool) -> Routes:
    tokens, num_experts = logits.shape
    noisy = logits + _gumbel(logits) if noisy_gate_policy == "RSample" else None
    gates = F.softmax(logits, dim=1)
    chosen, mask = _choice(gates if noisy is None else noisy)
    if used_token is not None:
        mask = used_token.reshape(-1, 1).to(mask.dtype) * mask
    exp_counts = mask.sum(dim=0)
    if drop_tokens:
        capacity = _capacity(gates, capacity_factor, min_capacity)
    else:
        capacity = int(exp_counts.max())
    l_aux = torch.sum(_first_choice_overlap(gates, mask)) * num_experts
    if tokens < min_capacity:
        raise ValueError(f"{tokens} tokens are fewer than min_capacity ({min_capacity}): use a "
                         "smaller min_capacity, or 0")
    # Tokens that find no place: random ones, or those that topk leaves out among equals.
    priority = mask * _uniform(0.0, 1.0, mask) if use_rts else mask
    placed = torch.topk(priority, k=min(capacity, tokens), dim=0)[1]
    mask = mask * torch.zeros_like(mask).scatter_(0, placed, 1)
    places = _of_tokens(torch.cumsum(mask, dim=0) - 1, mask)
    return Routes(l_aux, capacity, num_experts, _kept(chosen, mask).int()[None],
                  places.int()[None], _of_tokens(gates, mask)[None], exp_counts)


def _route_to_two(logits: Tensor, capacity_factor: float, min_capacity: int, drop_tokens: bool,
                  top2_2nd_expert_sampling: bool) -> Routes:
    num_experts = logits.shape[1]
    gates = F.softmax(logits, dim=1)
    first, mask1 = _choice(gates)
    if top2_2nd_expert_sampling:
        logits = logits + _gumbel(logits)
    second, mask2 = _choice(logits.masked_fill(mask1.bool(), float("-inf")))
    places1 = torch.cumsum(mask1, dim=0) - 1
    # Second choices come behind all first ones.
    places2 = torch.cumsum(mask2, dim=0) - 1 + mask1.sum(dim=0, keepdim=True)
    l_aux = torch.mean(_first_choice_overlap(gates, mask1)) * num_experts * num_experts
    exp_counts = (mask1 + mask2).sum(dim=0)
    if drop_tokens:
        capacity = _capacity(gates, capacity_factor * 2, min_capacity)
        mask1 = mask1 * (places1 < capacity)
        mask2 = mask2 * (places2 < capacity)
    else:
        capacity = int(exp_counts.max())
    weight1, weight2 = (_of_tokens(gates, mask.float()) for mask in (mask1, mask2))
    total = torch.clamp(weight1 + weight2, min=torch.finfo(gates.dtype).eps)
    return Routes(l_aux, capacity, num_experts,
                  torch.stack([_kept(first, mask1), _kept(second, mask2)]).int(),
                  torch.stack([_of_tokens(places1, mask1), _of_tokens(places2, mask2)]).int(),
                  torch.stack([weight1 / total, weight2 / total]), exp_counts)


def _route_to_many(logits: Tensor, k: int, capacity_factor: float, min_capacity: int,
                   drop_tokens: bool, drop_policy: str) -> Routes:
    if drop_policy not in ("probs", "position"):
        raise ValueError(f"drop_policy is \"probs\" or \"position\", not {drop_policy!r}")
    tokens, num_experts = logits.shape
    gates = F.softmax(logits, dim=1)
    scores, chosen = torch.topk(gates, k=k, dim=1)
    mask = torch.zeros_like(gates, dtype=torch.bool).scatter_(1, chosen, True)
    exp_counts = mask.sum(dim=0)
    l_aux = torch.mean(_first_choice_overlap(gates, mask)) * num_experts * num_experts / k
    if not drop_tokens:
        capacity = int(exp_counts.max())
    else:
        capacity = _capacity(gates, capacity_factor * k, min_capacity)
        if drop_policy == "probs":
            candidates = torch.zeros_like(gates).scatter(1, chosen, scores)
            placed = torch.topk(candidates, k=min(capacity, tokens), dim=0, sorted=False)[1]
            mask = mask & torch.zeros_like(mask).scatter_(0, placed, True)
    places = torch.cumsum(mask, dim=0) - 1
    if drop_tokens and drop_policy == "position":
        mask = mask & (places < capacity)
    masked = gates * mask
    total = torch.clamp(masked.sum(dim=-1, keepdim=True), min=torch.finfo(gates.dtype).eps)
    kept = mask.gather(1, chosen)
    weights = (masked / total).gather(1, chosen)
    return Routes(l_aux, capacity, num_experts,
                  chosen.masked_fill(~kept, -1).t().contiguous().int(),
                  (places.gather(1, chosen) * kept).t().contiguous().int(),
                  weights.t().contiguous(), exp_counts)


def _in_group(routes: Routes, drop_tokens: bool, ep_group) -> Routes:
    """The routes, with the largest capacity of the group's ranks where that follows the tokens."""
    if drop_tokens or ep_group is None or torch.distributed.get_world_size(ep_group) == 1:
        return routes
    capacity = torch.tensor(routes.capacity, device=routes.weights.device)
    torch.distributed.all_reduce(capacity, op=torch.distributed.ReduceOp.MAX, group=ep_group)
    return routes._replace(capacity=int(capacity))


def top1gating(logits: Tensor, capacity_factor: float, min_capacity: int,
               used_token: Tensor | None = None, noisy_gate_policy: str | None = None,
               drop_tokens: bool = True, use_rts: bool = True,
               ep_group: torch.distributed.ProcessGroup | None = None, sparse_routes: bool = False,
               use_tutel: bool = False) -> tuple:
    """Sends each token to its best expert: see TopKGate.forward for what it returns."""
    routes = _route_to_one(logits, capacity_factor, min_capacity, used_token, noisy_gate_policy,
                           drop_tokens, use_rts)
    routes = _in_group(routes, drop_tokens, ep_group)
    return tuple(routes) if sparse_routes else routes.as_matrices()


def top2gating(logits: Tensor, capacity_factor: float, min_capacity: int, drop_tokens: bool = True,
               ep_group: torch.distributed.ProcessGroup | None = None,
               top2_2nd_expert_sampling: bool = True, sparse_routes: bool = False) -> tuple:
    """Sends each token to two experts: see TopKGate.forward for what it returns."""
    routes = _route_to_two(logits, capacity_factor, min_capacity, drop_tokens,
                           top2_2nd_expert_sampling)
    routes = _in_group(routes, drop_tokens, ep_group)
    return tuple(routes) if sparse_routes else routes.as_matrices()


def topkgating(logits: Tensor, k: int, capacity_factor: float, min_capacity: int,
               drop_tokens: bool = True, ep_group: torch.distributed.ProcessGroup | None = None,
               drop_policy: str = "probs", sparse_routes: bool = False) -> tuple:
    """Sends each token to its k best experts: see TopKGate.forward for what it returns."""
    routes = _route_to_many(logits, k, capacity_factor, min_capacity, drop_tokens, drop_policy)
    routes = _in_group(routes, drop_tokens, ep_group)
    return tuple(routes) if sparse_routes else routes.as_matrices()


class TopKGate(nn.Module):
    """Scores tokens and sends each to k experts (k=1: Switch, k=2: GShard)."""

    def __init__(self, model_dim: int, num_experts: int, k: int = 1, capacity_factor: float = 1.0,
                 eval_capacity_factor: float = 1.0, min_capacity: int = 8,
                 noisy_gate_policy: str | None = None, drop_tokens: bool = True, use_rts: bool = True,
                 ep_group: torch.distributed.ProcessGroup | None = None,
                 top2_2nd_expert_sampling: bool = True) -> None:
        super().__init__()
        if noisy_gate_policy not in _POLICIES:
            raise ValueError(f"noisy_gate_policy is \"Jitter\", \"RSample\" or None, not "
                             f"{noisy_gate_policy!r}")
        if not 1 <= k <= num_experts:
            raise ValueError(f"k={k} experts for each token: of {num_experts} experts, k is 1 to {num_experts}")
        self.wg = nn.Linear(model_dim, num_experts, bias=False)
        self.ep_group = ep_group
        self.k = k
        self.capacity_factor = capacity_factor
        self.eval_capacity_factor = eval_capacity_factor
        self.min_capacity = min_capacity
        self.noisy_gate_policy = noisy_gate_policy
        self.drop_tokens = drop_tokens
        self.use_rts = use_rts
        self.top2_2nd_expert_sampling = top2_2nd_expert_sampling
        self._dsrun_leaf = True  # forward reads wg's weight without calling it

    def forward(self, input: Tensor, used_token: Tensor | None = None,
                sparse_routes: bool = False, use_tutel: bool = False) -> tuple:
        """Routes the tokens [S, model_dim].

        Args:
            used_token: [S], 0 for tokens that no expert gets (k=1 only).
            sparse_routes: what to return: (l_aux, capacity, num_experts, experts, places, weights,
                exp_counts), the values of three being [k, S]; otherwise (l_aux, combine_weights,
                dispatch_mask, exp_counts), two matrices of [S, num_experts, capacity].
        """
        tokens = input.float()
        if self.noisy_gate_policy == "Jitter" and self.training:
            tokens = _jitter(tokens)
        logits = F.linear(tokens, self.wg.weight.float())
        factor = self.capacity_factor if self.training else self.eval_capacity_factor
        if self.k == 1:
            routes = _route_to_one(logits, factor, self.min_capacity, used_token,
                                   self.noisy_gate_policy if self.training else None,
                                   self.drop_tokens, self.use_rts)
        elif self.k == 2:
            routes = _route_to_two(logits, factor, self.min_capacity, self.drop_tokens,
                                   self.top2_2nd_expert_sampling)
        else:
            routes = _route_to_many(logits, self.k, factor, self.min_capacity, self.drop_tokens,
                                    "probs")
        routes = _in_group(routes, self.drop_tokens, self.ep_group)
        return tuple(routes) if sparse_routes else routes.as_matrices()


def _output_of(result) -> Tensor:
    # Megatron's layers return (output, bias).
    return result[0] if isinstance(result, tuple) else result


class Experts(nn.Module):
    """Copies of one module, each for its own slice of dimension 1 of the input."""

    def __init__(self, expert: nn.Module, num_local_experts: int = 1,
                 expert_group_name: str | None = None) -> None:
        super().__init__()
        self.deepspeed_experts = nn.ModuleList(
            copy.deepcopy(expert) for _ in range(num_local_experts))
        self.num_local_experts = num_local_experts
        for parameter in self.deepspeed_experts.parameters():
            parameter.allreduce = False  # what scripts know experts' parameters by
            parameter.group_name = expert_group_name

    def forward(self, inputs: Tensor) -> Tensor:
        """Runs each expert on its part of [ranks, experts * places, model_dim], in order."""
        chunks = inputs.chunk(self.num_local_experts, dim=1)
        return torch.cat([_output_of(expert(chunk))
                          for expert, chunk in zip(self.deepspeed_experts, chunks)], dim=1)


class MOELayer(nn.Module):
    """A gate and its experts. Of the last forward: `l_aux` and `exp_counts`.

    With ep_size above 1 a forward and a backward are collective of the ranks that share experts.
    """

    def __init__(self, gate: nn.Module, experts: nn.Module, ep_group_name: str, ep_size: int,
                 num_local_experts: int, use_tutel: bool = False) -> None:
        super().__init__()
        if ep_size > 1 and not isinstance(experts, Experts):
            raise NotImplementedError(f"MOELayer(ep_size={ep_size}) with experts that are not of "
                                      "dsrun.moe.Experts")
        if use_tutel:
            logger.warning("use_tutel: dsrun routes tokens itself, with the same results")
        self.gate = gate
        self.experts = experts
        self.ep_group = None
        self.ep_ranks: list[int] | None = None  # that have all experts together, if not each has
        self.ep_size = ep_size
        self.ep_group_name = ep_group_name
        self.num_local_experts = num_local_experts

    def forward(self, hidden_states: Tensor, used_token: Tensor | None = None) -> Tensor:
        """Returns the weighted sum of each token's experts, of the shape of the input."""
        width = hidden_states.shape[-1]
        tokens = hidden_states.reshape(-1, width)
        routes = Routes(*self.gate(tokens, used_token, True))
        if self.ep_size > 1:
            capacity = agree_on_capacity(routes.capacity, self.find_ranks(), tokens)
            routes = routes._replace(capacity=capacity)
        self.l_aux, self.exp_counts = routes.l_aux, routes.exp_counts
        slots = routes.slots()
        # Which token is in each place; free places read a row of zeros behind the tokens.
        size = routes.num_experts * routes.capacity
        source = torch.full((size + 1,), tokens.shape[0], device=tokens.device)
        numbers = torch.arange(tokens.shape[0], device=tokens.device).expand_as(slots)
        source.scatter_(0, slots.reshape(-1), numbers.reshape(-1))
        padded = torch.cat([tokens, tokens.new_zeros(1, width)])
        placed = padded.index_select(0, source[:-1])
        placed = placed.view(routes.num_experts, routes.capacity, width)
        output = self._run_experts(placed).reshape(size, width)
        padded = torch.cat([output, output.new_zeros(1, width)])
        parts = padded.index_select(0, slots.reshape(-1)).view(*slots.shape, width)
        # The weights are fp32, and so is the sum.
        combined = (parts * routes.weights.unsqueeze(-1)).sum(0)
        return combined.to(output.dtype).reshape(hidden_states.shape)

    def find_ranks(self) -> list[int]:
        """The ranks that share the experts. Raises RuntimeError before they have been divided."""
        if self.ep_ranks is None:
            raise RuntimeError(f"MoE(ep_size={self.ep_size}): the ranks share no experts yet: call "
                               "initialize(), or set_deepspeed_parallelism() of the layer, first")
        return self.ep_ranks

    def _run_experts(self, placed: Tensor) -> Tensor:
        """[num_experts, capacity, width] of this rank's tokens -> the same of their outputs."""
        if self.ep_size == 1:
            return self.experts(placed[None])
        ranks = self.find_ranks()
        arrived = exchange(placed, ranks)
        output = self.experts(arrived.view(self.ep_size, self.num_local_experts, *placed.shape[1:]))
        return exchange(output.reshape(placed.shape), ranks)


class MoE(nn.Module):
    """A layer of experts, in place of a layer such as an MLP.

    Args:
        hidden_size: of the input and output.
        expert: the module that is copied for each expert.
        num_experts: how many there are.
        ep_size: ranks that have the experts together; it divides num_experts and the ranks.
        k: experts that a token is sent to.
        capacity_factor, eval_capacity_factor, min_capacity: places of an expert, as above.
        use_residual: adds the output of `expert` itself, both weighted by a learned coefficient.
        noisy_gate_policy: in training, "Jitter" multiplies the gate's input by random numbers
            about 1, and "RSample" adds Gumbel noise to its scores (k=1).
        drop_tokens: False: the capacity grows with the fullest expert.
        use_rts: drops random tokens, not the last ones (k=1).
        use_tutel: accepted; dsrun has no other kernels.
        enable_expert_tensor_parallelism: accepted; without tensor parallelism it means nothing.
        top2_2nd_expert_sampling: adds Gumbel noise to the choice of the second expert (k=2).
    """

    def __init__(self, hidden_size: int, expert: nn.Module, num_experts: int = 1, ep_size: int = 1,
                 k: int = 1, capacity_factor: float = 1.0, eval_capacity_factor: float = 1.0,
                 min_capacity: int = 4, use_residual: bool = False,
                 noisy_gate_policy: str | None = None, drop_tokens: bool = True,
                 use_rts: bool = True, use_tutel: bool = False,
                 enable_expert_tensor_parallelism: bool = False,
                 top2_2nd_expert_sampling: bool = True) -> None:
        super().__init__()
        if ep_size < 1 or num_experts % ep_size != 0:
            raise ValueError(f"MoE(num_experts={num_experts}, ep_size={ep_size}): ep_size has to "
                             "divide the number of experts")
        self.use_residual = use_residual
        self.enable_expert_tensor_parallelism = enable_expert_tensor_parallelism
        self.ep_size = ep_size
        self.expert_group_name = f"ep_size_{ep_size}"
        self.num_experts = num_experts
        self.num_local_experts = num_experts // ep_size
        # In DeepSpeed's order: with one seed, both initialize the gate alike.
        experts = Experts(expert, self.num_local_experts, self.expert_group_name)
        gate = TopKGate(hidden_size, num_experts, k, capacity_factor, eval_capacity_factor,
                        min_capacity, noisy_gate_policy, drop_tokens, use_rts, None,
                        top2_2nd_expert_sampling)
        self.deepspeed_moe = MOELayer(gate, experts, self.expert_group_name, ep_size,
                                      self.num_local_experts, use_tutel)
        if use_residual:
            self.mlp = expert
            self.coefficient = nn.Linear(hidden_size, 2)

    def set_deepspeed_parallelism(self, use_data_before_expert_parallel_: bool = False) -> None:
        """Divides the ranks: `ep_size` neighbours share the experts.

        With `use_data_before_expert_parallel_`, those are as far apart as they can be.
        """
        groups._create_expert_and_data_parallel(self.ep_size, use_data_before_expert_parallel_)
        if self.ep_size > 1:
            self.deepspeed_moe.ep_ranks = groups._get_expert_parallel_group_ranks(
                self.expert_group_name)

    def forward(self, hidden_states: Tensor,
                used_token: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (output, l_aux, exp_counts).

        l_aux is the loss that balances the experts, to be added to the model's loss with a factor
        such as 0.01; exp_counts is how many tokens chose each expert.
        """
        output = self.deepspeed_moe(hidden_states, used_token)
        if self.use_residual:
            dense = _output_of(self.mlp(hidden_states))
            share = F.softmax(self.coefficient(hidden_states), dim=-1)
            output = output * share[..., 0:1] + dense * share[..., 1:]
        return output, self.deepspeed_moe.l_aux, self.deepspeed_moe.exp_counts


def has_moe_layers(m: nn.Module) -> tuple[bool, int]:
    """Whether the model has a MoE, and the number of experts of the first one."""
    for module in m.modules():
        if isinstance(module, MoE):
            return True, module.num_experts
    return False, 0


def is_moe_param(param: Tensor) -> bool:
    """Whether the parameter is an expert's."""
    return not getattr(param, "allreduce", True)


def is_moe_param_group(param_group: dict) -> bool:
    """Whether the optimizer's group has parameters of experts, by its key "moe"."""
    return param_group.get("moe", False)


def split_params_into_shared_and_expert_params(params: Iterable[Tensor]) -> tuple[list, list]:
    """(parameters of no expert, parameters of experts)."""
    parts: tuple[list, list] = ([], [])
    for param in params:
        parts[is_moe_param(param)].append(param)
    return parts


def split_params_grads_into_shared_and_expert_params(group: Iterable[Tensor]) -> tuple[list, list]:
    """The same of their gradients, where there are some."""
    shared, expert = split_params_into_shared_and_expert_params(
        param for param in group if param.grad is not None)
    return [param.grad for param in shared], [param.grad for param in expert]


def _in_sizes(params: list, most: float) -> list[list]:
    """Divides the list where the next parameter would make a part exceed `most` elements."""
    parts: list[list] = [[]]
    size = 0
    for param in params:
        count = getattr(param, "ds_numel", param.numel())
        if size + count > most:
            parts.append([])
            size = 0
        parts[-1].append(param)
        size += count
    return [part for part in parts if part]


def split_params_into_different_moe_groups_for_optimizer(
        param_groups: dict[str, Any] | Sequence[dict[str, Any]],
        max_group_size: float | None = 178956971) -> list[dict[str, Any]]:
    """Moves the experts' parameters of each group (with a "name") to groups of their own.

    A new group has the options of its source, the name of the experts' group, and "moe": True. It
    has at most `max_group_size` elements, if that is not None.
    """
    if isinstance(param_groups, dict):
        param_groups = [param_groups]
    if not isinstance(param_groups, (list, tuple)):
        raise ValueError(f"parameter groups are dictionaries, not {type(param_groups).__name__}")
    groups = list(param_groups)
    added = []
    for group in groups:
        shared, experts = split_params_into_shared_and_expert_params(group["params"])
        by_name: dict[str, list] = {}
        for param in experts:
            by_name.setdefault(param.group_name, []).append(param)
        for name, params in by_name.items():
            parts = [params] if max_group_size is None else _in_sizes(params, max_group_size)
            added += [{**group, "name": name, "moe": True, "params": part} for part in parts]
        group["params"] = shared
    return groups + added


def configure_moe_param_groups(model_parameters: list) -> list[dict[str, Any]]:
    """Groups of parameters (tensors, or groups already) in which experts are apart."""
    if not isinstance(model_parameters, list):
        raise TypeError("model_parameters is a list of parameters or of groups")
    if isinstance(model_parameters[0], dict):
        if any("moe" in group for group in model_parameters):
            return model_parameters
        return split_params_into_different_moe_groups_for_optimizer(model_parameters)
    return split_params_into_different_moe_groups_for_optimizer(
        {"params": model_parameters, "name": "dense-params"})
