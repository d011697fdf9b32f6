// The ops that TensorFlow has when this library is loaded: their inputs, outputs and attributes,
// and what is known of the shapes of their outputs.
#pragma once

#include <string>

namespace rueda::tensorflow {

// Registers all ops. Returns "" or what TensorFlow said of the first that it did not take.
//
// Ops of tensors are not stateful: TensorFlow would run stateful ones one after the other. Instead
// their last input, the anchor, is the output of a stateful op, so that they are never evaluated
// while a graph is optimised, and their names are attributes, so that two are never taken for one
// (docs/decisions/0092-what-tensorflow-and-jax-carry.md).
std::string register_ops();

}  // namespace rueda::tensorflow
