"""Has Keras's optimizers reduce gradients over all ranks.

An optimizer stays what it is, with its state, and gets a class that is made for it: its own class, with one method in front. The
class has the name and the module of the optimizer's own, so that what is saved is loaded without Rueda. Keras 3 applies gradients
by apply(), whoever calls it, and so that is where they are reduced; Keras 2 has a method for it (docs/decisions/0092-what-tensorflow-and-jax-carry.md)."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Type

from .._core._operations import Average
from .._core._process_sets import ProcessSet, global_process_set
from ..common.gradients import Reducer
from ._plain import plain

_SETTINGS = "_rueda_settings"
_WRONG_WAY_ROUND = ("a LossScaleOptimizer around a DistributedOptimizer would have ranks skip steps by themselves; use "
                    "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)), which has them agree, or set "
                    "keras.config.set_dtype_policy(\"mixed_float16\") before DistributedOptimizer(optimizer)")


class _Settings:
    """Holds what the methods below need. Keras does not save or track it.

    Attributes:
        factor: multiplies the reduced gradients.
    """

    def __init__(self, reducer: Reducer, factor: float) -> None:
        self.reducer, self.factor = reducer, factor

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        reduced = self.reducer.reduce(gradients, variables)
        if self.factor == 1.0:
            return reduced
        return [None if one is None else self.reducer.scale(one, self.factor) for one in reduced]


class _Registering:
    def register_local_var(self, var: Any) -> None:
        """Has the gradient of a variable stay this rank's own."""
        getattr(self, _SETTINGS).reducer.add_local(var)


class _Scaling(_Registering):
    """Is put before Keras 3's LossScaleOptimizer: gradients are reduced before it looks whether they are finite, so that all ranks
    take the step or none does."""

    @plain
    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)  # type: ignore[attr-defined]
        reduced = getattr(self, _SETTINGS).reduce(list(grads), variables)
        return super().apply(reduced, variables)  # type: ignore[misc]


class _ScalingStateless(_Scaling):
    """Is put before a LossScaleOptimizer whose trainer calls stateless_apply(), which does not come through its apply()."""

    def stateless_apply(self, optimizer_variables: Any, grads: Iterable[Any], trainable_variables: Any) -> Any:
        reduced = getattr(self, _SETTINGS).reduce(list(grads), list(self._trainable_variables))  # type: ignore[attr-defined]
        return super().stateless_apply(optimizer_variables, reduced, trainable_variables)  # type: ignore[misc]


class _Applying(_Scaling):
    """Is put before any other optimizer of Keras 3."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss_scale_factor" and value is None:  # it is what a LossScaleOptimizer sets
            raise ValueError(_WRONG_WAY_ROUND)
        super().__setattr__(name, value)


class _Aggregating(_Registering):
    """Is put before optimizers of Keras 2, which let gradients be reduced before anything else is done with them."""

    @plain
    def aggregate_gradients(self, grads_and_vars: Iterable[Any]) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        reduced = getattr(self, _SETTINGS).reduce([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables))


class _AggregatingLegacy(_Registering):
    """Is put before the legacy optimizers of Keras 2."""

    _HAS_AGGREGATE_GRAD = True

    @plain
    def _aggregate_gradients(self, grads_and_vars: Iterable[Any]) -> Any:
        pairs = list(grads_and_vars)
        return getattr(self, _SETTINGS).reduce([gradient for gradient, _ in pairs], [variable for _, variable in pairs])


def _method_for(optimizer: Any, loss_scale: Any, reducer: Reducer) -> Optional[type]:
    if hasattr(optimizer, "apply") and hasattr(optimizer, "stateless_apply"):
        if isinstance(optimizer, loss_scale):
            return _ScalingStateless if reducer.has_stateless_hook else _Scaling
        return _Applying
    if hasattr(optimizer, "aggregate_gradients"):
        return _Aggregating
    if hasattr(optimizer, "_aggregate_gradients"):
        return _AggregatingLegacy
    return None


def _accumulate(optimizer: Any, method: type, passes: int) -> None:
    """Has an optimizer of Keras 3 take a step after so many calls."""
    if not issubclass(method, _Scaling):
        raise ValueError("backward_passes_per_step needs Keras 3; with Keras 2 add up gradients before the optimizer is called")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.built:
        raise ValueError("backward_passes_per_step needs an optimizer that has not been built yet; make it before model.fit()")
    inner.gradient_accumulation_steps = passes


def distribute(keras: Any, optimizer: Any, reducer: Reducer, backward_passes_per_step: int, averages_passes: bool) -> Any:
    """Has `optimizer` reduce gradients by `reducer`.

    Args:
        keras: the module that the optimizer is of.

    Returns:
        The optimizer, or a LossScaleOptimizer around it if the policy is mixed_float16.

    Raises:
        ValueError: it cannot; the text says what to do.
    """
    if hasattr(optimizer, _SETTINGS):
        raise ValueError("the optimizer is a DistributedOptimizer already; wrap it once")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step} must be 1 or more")
    is_keras_3 = int(getattr(keras, "__version__", "2").split(".")[0]) >= 3  # TensorFlow 2.15's tf.keras does not say
    loss_scale = keras.optimizers.LossScaleOptimizer if is_keras_3 else keras.mixed_precision.LossScaleOptimizer
    if not is_keras_3 and isinstance(optimizer, loss_scale):
        distribute(keras, optimizer.inner_optimizer, reducer, backward_passes_per_step, averages_passes)
        return optimizer  # it asks the optimizer within to reduce, before it looks whether gradients are finite
    method = _method_for(optimizer, loss_scale, reducer)
    if method is None:
        raise ValueError(f"optimizer must be one of Keras's, not {type(optimizer).__name__}; with tf.GradientTape use "
                         "DistributedGradientTape")
    if method is _Applying and keras.config.dtype_policy().name == "mixed_float16":
        optimizer = loss_scale(optimizer)
        method = _method_for(optimizer, loss_scale, reducer)
        assert method is not None
    factor = 1.0
    if backward_passes_per_step > 1:
        _accumulate(optimizer, method, backward_passes_per_step)
        factor = 1.0 if averages_passes else float(backward_passes_per_step)
    own = type(optimizer)
    object.__setattr__(optimizer, _SETTINGS, _Settings(reducer, factor))
    optimizer.__class__ = type(own.__name__, (method, own), {"__module__": own.__module__, "__qualname__": own.__qualname__,
                                                             "__doc__": own.__doc__})
    return optimizer


def distributed_optimizer(keras: Any, kind: Type[Reducer], optimizer: Any, name: Optional[str], compression: Any,
                          sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: int = Average,
                          backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False, num_groups: int = 0,
                          groups: Optional[Any] = None, process_set: ProcessSet = global_process_set,
                          scale_local_gradients: bool = True, local_layers: Any = None) -> Any:
    """Does what the front ends' DistributedOptimizer() does, by a Reducer of this kind."""
    reducer = kind(name or f"Distributed{type(optimizer).__name__}", compression, sparse_as_dense, op, gradient_predivide_factor,
                   num_groups, groups, process_set, scale_local_gradients)
    layers = [] if local_layers is None else local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        for variable in layer.trainable_weights:
            reducer.add_local(variable)
    return distribute(keras, optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)
