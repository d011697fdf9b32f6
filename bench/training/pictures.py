"""Makes the data that networks are trained on: random pictures, or real ones through a real input pipeline (files decoded and
cut, turned, scaled by torchvision in a torch DataLoader). The real pictures come with scikit-learn: 1,797 handwritten digits of
10 kinds, and two photographs, of which squares are cut."""

import torch


class _Synthetic(torch.utils.data.IterableDataset):
    """Gives the same batch again and again, without any input pipeline."""

    def __init__(self, batch, side, classes, seed):
        generator = torch.Generator().manual_seed(seed)
        self.batch = (torch.randn(batch, 3, side, side, generator=generator),
                      torch.randint(classes, (batch,), generator=generator))

    def __iter__(self):
        while True:
            yield self.batch


class _Real(torch.utils.data.Dataset):
    """Gives real pictures. `pictures` are uint8 arrays, height × width × 3; each is taken apart and transformed when it is asked
    for."""

    def __init__(self, pictures, labels, transform, length):
        self.pictures, self.labels, self.transform, self.length = pictures, labels, transform, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.pictures)
        return self.transform(self.pictures[which]), self.labels[which]


def _read(kind):
    if kind == "digits":
        from sklearn.datasets import load_digits
        found = load_digits()
        grey = (found.images * 15).astype("uint8")
        return [picture[:, :, None].repeat(3, axis=2) for picture in grey], found.target.tolist()
    from sklearn.datasets import load_sample_images
    return list(load_sample_images().images), [0, 1]


def _transform(kind, side):
    from torchvision import transforms
    cut = ([transforms.Resize(side), transforms.RandomCrop(side, padding=side // 8)] if kind == "digits" else
           [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip()])
    return transforms.Compose([transforms.ToPILImage(), *cut, transforms.ToTensor(),
                               transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])


def loader_of(kind, batch, side, rank, ranks, steps):
    """Yields (pictures: batch × 3 × side × side, labels: batch), for `steps` steps at least; each rank has its own."""
    if kind == "synthetic":
        return _Synthetic(batch, side, 10, seed=rank)
    pictures, labels = _read(kind)
    data = _Real(pictures, labels, _transform(kind, side), length=max(len(pictures), batch * ranks * steps))
    sampler = torch.utils.data.distributed.DistributedSampler(data, ranks, rank, seed=7)
    return torch.utils.data.DataLoader(data, batch, sampler=sampler, drop_last=True)
