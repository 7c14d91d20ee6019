"""Lightning's own model for trying things out, trained with DDP; nothing in it knows who starts it."""

import os
import sys

import lightning
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.plugins.environments import TorchElasticEnvironment


def main():
    trainer = lightning.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp",
                                max_epochs=1, limit_train_batches=4, limit_val_batches=2, logger=False,
                                enable_progress_bar=False, default_root_dir=sys.argv[1])
    trainer.fit(BoringModel())
    assert trainer.global_step == 4
    assert isinstance(trainer.strategy.cluster_environment, TorchElasticEnvironment)
    print(f"rank {trainer.global_rank} of {trainer.world_size} finished, local rank {trainer.local_rank}", flush=True)


if __name__ == "__main__":
    main()
