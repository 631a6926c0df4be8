"""A job of a test: epochs over an ImageFolder, by PyTorch. Prints each number of a sample that it read, an epoch a line."""

import argparse
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class ImageFolder(Dataset):
    """As torchvision's, but for the images."""

    def __init__(self, root):
        self.samples = []
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        for number, name in enumerate(classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name))):
                self.samples += [(os.path.join(folder, file), number) for file in sorted(files)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        with open(self.samples[number][0], "rb") as file:
            return torch.tensor([number, len(file.read())])


asked = argparse.ArgumentParser()
asked.add_argument("root")
asked.add_argument("--workers", type=int, default=2)
asked.add_argument("--batch", type=int, default=8)
asked.add_argument("--epochs", type=int, default=2)
asked.add_argument("--world", type=int, default=0)
asked.add_argument("--rank", type=int, default=0)
asked.add_argument("--seed", type=int, default=0)
asked.add_argument("--still", action="store_true", help="without set_epoch")
asked.add_argument("--wait", type=float, default=0.0, help="seconds before the first sample of an epoch")
asked.add_argument("--step", type=float, default=0.0, help="seconds a batch")
asked = asked.parse_args()

torch.manual_seed(asked.seed)
data = ImageFolder(asked.root)
sampler = DistributedSampler(data, asked.world, asked.rank, seed=asked.seed) if asked.world else None
loader = DataLoader(data, asked.batch, shuffle=sampler is None, sampler=sampler, num_workers=asked.workers)
for epoch in range(asked.epochs):
    if sampler is not None and not asked.still:
        sampler.set_epoch(epoch)
    batches = iter(loader)
    time.sleep(asked.wait)
    read = []
    for batch in batches:
        read += batch[:, 0].tolist()
        time.sleep(asked.step)
    print(*read, flush=True)
    # Whoever looks at the job between two epochs says when it goes on.
    if not sys.stdin.readline():
        break
