"""Makes the networks that are trained, from torchvision, and measures when in a step their gradients are ready."""

import json
import time
from pathlib import Path

# Here a network is its name in torchvision. That of GoogLeNet is trained without its auxiliary classifiers, with 173 gradients;
# rueda-bench and rueda-sim have the 187 with them, by the name of "googlenet-aux".
MODELS = {"googlenet-no-aux": "googlenet", "resnet50": "resnet50", "resnet101": "resnet101", "vgg16": "vgg16",
          "mobilenet": "mobilenet_v2"}


def build(name, classes=1000):
    """Returns the network with random weights, which are the same in every process."""
    import torch
    import torchvision

    torch.manual_seed(1)
    more = {"init_weights": True, "aux_logits": False} if name == "googlenet-no-aux" else {}
    return getattr(torchvision.models, MODELS[name])(num_classes=classes, **more)


def measure_schedule(name, batch=2, side=96, steps=3):
    """Measures when in a step each gradient is ready. Returns {"model", "forward": the share of the step that the forward pass
    takes, "parameters": [{"name", "shape", "ready": a share of the step}, in the order of the network]}.

    The steps run on this machine's CPU, on one thread, on small pictures; the fastest one counts. A GPU's shares differ somewhat,
    but the order, and that the large gradients of the last layers come first, are the network's."""
    import torch

    torch.set_num_threads(1)
    model = build(name)
    ready = {}
    accumulators = []  # keeps the nodes alive, because a hook lasts as long as its node
    for key, parameter in model.named_parameters():
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_, key=key: ready.__setitem__(key, time.perf_counter()))
        accumulators.append(node)
    pictures, labels = torch.randn(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)
    best = None
    for _ in range(steps + 1):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        middle = time.perf_counter()
        loss.backward()
        seconds = time.perf_counter() - begin
        if best is None or seconds < best[0]:
            best = seconds, (middle - begin) / seconds, {key: (at - begin) / seconds for key, at in ready.items()}
    _, forward, shares = best
    return {"model": name, "forward": forward,
            "parameters": [{"name": key, "shape": list(parameter.shape), "ready": min(shares[key], 1.0)}
                           for key, parameter in model.named_parameters()]}


def read_schedule(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))
