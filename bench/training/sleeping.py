"""Defines a network that computes nothing: it has the parameters of a real one, and its gradients become ready when the real
one's would, in a step of a given length. What the step takes beyond that length is what its communication costs, on a machine
whose cores are too few to compute and to communicate at once.

Gradients keep the values that they had before the step: nothing is written to them, so that no memory traffic is measured but
that of the communication."""

import time

import torch


class _Layer(torch.autograd.Function):
    """Passes its input on. Its parameter's gradient is ready, unchanged, `ready_s` after the step began."""

    @staticmethod
    def forward(ctx, signal, clock, ready_s, parameter):
        ctx.clock, ctx.ready_s = clock, ready_s
        return signal.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.sleep_until(ctx.ready_s)
        return gradient, None, None, None


class _Clock:
    def __init__(self):
        self.begin_s = time.perf_counter()

    def begin(self):
        self.begin_s = time.perf_counter()

    def sleep_until(self, since_begin_s):
        left_s = self.begin_s + since_begin_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)


class SleepingModel(torch.nn.Module):
    """A network that sleeps. `schedule` is that of models.measure_schedule(). A step begins with forward() and takes `step_s`, if
    nothing holds it up. Its parameters' gradients are tensors of their shape, which exist from the beginning."""

    def __init__(self, schedule, step_s):
        super().__init__()
        self._clock = _Clock()
        self._forward_s = schedule["forward"] * step_s
        self._ready_s = [entry["ready"] * step_s for entry in schedule["parameters"]]
        self.layers = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(entry["shape"])) for entry in schedule["parameters"])
        # The layer whose gradient is ready last stands first, because the backward pass reaches it last.
        self._order = sorted(range(len(self.layers)), key=lambda i: -self._ready_s[i])
        for parameter in self.layers:
            parameter.grad = torch.zeros_like(parameter)

    def forward(self, signal):
        self._clock.begin()
        self._clock.sleep_until(self._forward_s)
        for i in self._order:
            signal = _Layer.apply(signal, self._clock, self._ready_s[i], self.layers[i])
        return signal.sum()


class IdleOptimizer(torch.optim.Optimizer):
    """An optimizer that changes nothing, and leaves gradients as they are."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        pass

    def zero_grad(self, set_to_none=False):
        pass
