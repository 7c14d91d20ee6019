"""One rank of a peer in scripts/bench/collectives: peer_collectives.py gloo|deepspeed BYTES...

Prints from rank 0 one JSON object per size, as bench_collectives does.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

BATCHES = 7
BATCH_SECONDS = 0.1


def median_call(call):
    call()
    start = time.perf_counter()
    call()
    calls = torch.tensor([max(3, int(BATCH_SECONDS / (time.perf_counter() - start)))])
    dist.broadcast(calls, 0)
    batches = []
    for _ in range(BATCHES):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls.item()):
            call()
        batches.append((time.perf_counter() - start) / calls.item())
    return statistics.median(batches)


def measure(size, all_reduce, all_only):
    ranks = dist.get_world_size()
    count = size // 4 // ranks * ranks
    whole, part = torch.zeros(count), torch.zeros(count // ranks)  # sums of zeros stay finite
    seconds = {"bytes": size, "all_reduce": median_call(lambda: all_reduce(whole))}
    if not all_only:
        seconds["all_gather"] = median_call(lambda: dist.all_gather_into_tensor(whole, part))
        seconds["reduce_scatter"] = median_call(lambda: dist.reduce_scatter_tensor(part, whole))
        seconds["broadcast"] = median_call(lambda: dist.broadcast(whole, 0))
        seconds["barrier"] = median_call(dist.barrier)
    return seconds


def main():
    peer, sizes = sys.argv[1], [int(size) for size in sys.argv[2:]]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    all_reduce = dist.all_reduce
    if peer == "deepspeed":
        from deepspeed.ops.op_builder import ShareMemCommBuilder

        ShareMemCommBuilder().load().initialize(dist.get_world_size(), dist.get_rank())
        all_reduce = torch.ops.deepspeed.inference_all_reduce_
    for size in sizes:
        seconds = measure(size, all_reduce, all_only=peer == "deepspeed")
        if dist.get_rank() == 0:
            print(json.dumps(seconds), flush=True)
    dist.destroy_process_group()


main()
