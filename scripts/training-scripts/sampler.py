"""Repeated augmentation, as torchvision's references and DeiT have it: the copies of a sample go
to different ranks, in one step."""

import math

import torch
import torch.distributed as dist


class RASampler(torch.utils.data.Sampler):
    def __init__(self, dataset, seed=0, repetitions=3):
        self.dataset = dataset
        self.num_replicas = dist.get_world_size()
        self.rank = dist.get_rank()
        self.epoch = 0
        self.seed = seed
        self.repetitions = repetitions
        self.num_samples = math.ceil(len(dataset) * repetitions / self.num_replicas)
        self.num_selected_samples = len(dataset) // self.num_replicas

    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        order = [sample for sample in order for _ in range(self.repetitions)]
        missing = self.num_samples * self.num_replicas - len(order)
        order += order[:missing]
        return iter(order[self.rank :: self.num_replicas][: self.num_selected_samples])

    def __len__(self):
        return self.num_selected_samples

    def set_epoch(self, epoch):
        self.epoch = epoch
