"""Makes the functions of a front end for a Keras: optimizers, and the loading of models."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Type

from .._core._operations import Average
from .._core._process_sets import ProcessSet, global_process_set
from ..common.gradients import Reducer
from ._optimizers import distributed_optimizer


class Framework(NamedTuple):
    """Says by what a front end works: the Keras, the Reducer and the Compression of its tensors, and a function that is called before
    anything is made, which raises where nothing can be made any more."""

    keras: Any
    reducer: Type[Reducer]
    compression: Any
    check: Callable[[], None] = lambda: None


def distributed_optimizer_of(framework: Framework) -> Callable[..., Any]:
    """Returns the front end's DistributedOptimizer()."""
    def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = '', device_sparse: str = '',
                             compression: Any = framework.compression.none, sparse_as_dense: bool = False,
                             gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
                             average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Optional[Any] = None,
                             process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
        """Has a Keras optimizer reduce gradients over all ranks before it applies them. What is saved with it is loaded without
        Rueda.

        Args:
            optimizer: the optimizer, which is changed. Under the policy mixed_float16 a LossScaleOptimizer comes around it: an
                infinity on one rank then has all ranks skip the step.
            name: a prefix of the names under which ranks meet.
            device_dense, device_sparse: not used.
            compression, sparse_as_dense, gradient_predivide_factor, op, num_groups, groups, process_set, scale_local_gradients: as
                for rueda.tensorflow.DistributedGradientTape().
            backward_passes_per_step: the number of calls after which the optimizer takes a step (Keras 3). Gradients are reduced in
                each.
            average_aggregated_gradients: if True, that step has the average of these gradients, and otherwise their sum.

        Returns:
            The optimizer, or the LossScaleOptimizer around it.

        Raises:
            ValueError: it is no optimizer of Keras, is a DistributedOptimizer already, or an argument is wrong.
            RuntimeError: Keras has another backend than when the front end was imported.
        """
        framework.check()
        return distributed_optimizer(framework.keras, framework.reducer, optimizer, name, compression, sparse_as_dense,
                                     gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                                     num_groups, groups, process_set, scale_local_gradients)
    return DistributedOptimizer


def partial_distributed_optimizer_of(framework: Framework) -> Callable[..., Any]:
    """Returns the front end's PartialDistributedOptimizer()."""
    def PartialDistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = '', device_sparse: str = '',
                                    compression: Any = framework.compression.none, sparse_as_dense: bool = False,
                                    gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
                                    average_aggregated_gradients: bool = False, num_groups: int = 0,
                                    groups: Optional[Any] = None, process_set: ProcessSet = global_process_set,
                                    local_layers: Any = None, scale_local_gradients: bool = True) -> Any:
        """Does what DistributedOptimizer() does, and leaves out the variables of some layers.

        Args:
            local_layers: a layer, or a list of layers, whose gradients stay this rank's own.
            optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
                backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients: as for
                DistributedOptimizer().

        Returns:
            The optimizer, or the LossScaleOptimizer around it.

        Raises:
            ValueError, RuntimeError: as for DistributedOptimizer().
        """
        framework.check()
        return distributed_optimizer(framework.keras, framework.reducer, optimizer, name, compression, sparse_as_dense,
                                     gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                                     num_groups, groups, process_set, scale_local_gradients, local_layers)
    return PartialDistributedOptimizer


def load_model_of(framework: Framework) -> Callable[..., Any]:
    """Returns the front end's load_model()."""
    def load_model(filepath: Any, custom_optimizers: Optional[Sequence[Any]] = None,
                   custom_objects: Optional[Dict[str, Any]] = None, compression: Any = framework.compression.none,
                   legacy_opts: bool = False) -> Any:
        """Loads a model that has been saved with its optimizer, which then reduces gradients over all ranks.

        Args:
            filepath: what keras.models.load_model() takes.
            custom_optimizers: classes of optimizers that are not Keras's.
            custom_objects: other objects that are not Keras's, by name.
            compression: the Compression of the gradients.
            legacy_opts: not used.

        Returns:
            The model.

        Raises:
            ValueError: the model has been saved without an optimizer.
            RuntimeError: as for DistributedOptimizer().
        """
        framework.check()
        objects = {one.__name__: one for one in custom_optimizers or ()}
        objects.update(custom_objects or {})
        model = framework.keras.models.load_model(filepath, custom_objects=objects)
        if getattr(model, "optimizer", None) is None:
            raise ValueError(f"the model in {filepath} has no optimizer; load it by keras.models.load_model, and compile it")
        distributed_optimizer(framework.keras, framework.reducer, model.optimizer, None, compression)
        return model
    return load_model
