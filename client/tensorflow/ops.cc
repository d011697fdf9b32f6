#include "client/tensorflow/ops.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/tensorflow/tf_abi.h"

namespace rueda::tensorflow {
namespace {

constexpr const char* kType =
    "T: {float, double, half, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
    "complex64, complex128, bool}";
constexpr const char* kTypes =
    "T: list({float, double, half, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, "
    "uint64, complex64, complex128, bool}) >= 1";
constexpr auto kUnknown = static_cast<size_t>(-1);  // of a dimension

using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

struct Op {
  const char* name;
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  std::vector<const char*> attributes;
  InferShapes infer_shapes;
  bool is_stateful = false;
};

// Each output has the shape of the input at its place. The last input is the anchor.
void infer_same(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - 1;
  for (int i = 0; i < count && TF_GetCode(status) == TF_OK; ++i) {
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  TF_DeleteShapeHandle(shape);
}

// The first output has the shape of the first input but for its rows, whose number is not known.
// A second output has one number a rank.
void infer_rows(TF_ShapeInferenceContext* context, bool has_numbers, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  TF_ShapeHandle* rows = TF_ShapeInferenceContextVectorFromSize(context, kUnknown);
  if (has_numbers) TF_ShapeInferenceContextSetOutput(context, 1, rows, status);
  if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextGetInput(context, 0, shape, status);
  if (TF_GetCode(status) == TF_OK && TF_ShapeInferenceContextRankKnown(context, shape) != 0) {
    TF_ShapeInferenceContextWithRankAtLeast(context, shape, 1, shape, status);
    if (TF_GetCode(status) == TF_OK) {
      TF_ShapeInferenceContextSubshape(context, shape, 1, INT64_MAX, shape, status);
    }
    if (TF_GetCode(status) == TF_OK) {
      TF_ShapeInferenceContextConcatenateShapes(context, rows, shape, shape, status);
    }
    if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
  }
  TF_DeleteShapeHandle(rows);
  TF_DeleteShapeHandle(shape);
}

void infer_rows_and_numbers(TF_ShapeInferenceContext* context, TF_Status* status) {
  infer_rows(context, true, status);
}

void infer_rows_alone(TF_ShapeInferenceContext* context, TF_Status* status) {
  infer_rows(context, false, status);
}

void infer_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_ShapeInferenceContextScalar(context);
  TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
  TF_DeleteShapeHandle(shape);
}

void infer_nothing(TF_ShapeInferenceContext* /*context*/, TF_Status* /*status*/) {}

// prescale and postscale are the bits of doubles (Attributes::reduce_options).
std::vector<Op> all_ops() {
  constexpr bool kIsStateful = true;
  return {
      {"RuedaAllreduce",
       {"tensors: T", "anchor: int32"},
       {"reduced: T"},
       {kTypes, "names: list(string)", "group: string", "reduce_op: int", "prescale: int",
        "postscale: int", "process_set: int"},
       &infer_same},
      {"RuedaBroadcast",
       {"tensors: T", "anchor: int32"},
       {"received: T"},
       {kTypes, "names: list(string)", "root_rank: int", "is_kept: int", "process_set: int"},
       &infer_same},
      {"RuedaAllgather",
       {"tensor: T", "anchor: int32"},
       {"gathered: T", "rows: int64"},
       {kType, "tensor_name: string", "process_set: int"},
       &infer_rows_and_numbers},
      {"RuedaReducescatter",
       {"tensor: T", "rows: int64", "anchor: int32"},
       {"part: T"},
       {kType, "tensor_name: string", "reduce_op: int", "prescale: int", "postscale: int",
        "process_set: int"},
       &infer_rows_alone},
      {"RuedaAlltoall",
       {"tensor: T", "splits: int64", "anchor: int32"},
       {"received: T", "received_splits: int64"},
       {kType, "tensor_name: string", "process_set: int"},
       &infer_rows_and_numbers},
      {"RuedaBarrier",
       {},
       {},
       {"tensor_name: string", "process_set: int"},
       &infer_nothing,
       kIsStateful},
      {"RuedaPlace",
       {},
       {"value: int32"},
       {"what: {'rank', 'size', 'local_rank', 'local_size', 'included'}", "process_set: int"},
       &infer_scalar,
       kIsStateful},
      {"RuedaAnchor", {}, {"anchor: int32"}, {}, &infer_scalar, kIsStateful},
  };
}

}  // namespace

std::string register_ops() {
  for (const Op& op : all_ops()) {
    TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(op.name);
    for (const char* spec : op.attributes) TF_OpDefinitionBuilderAddAttr(builder, spec);
    for (const char* spec : op.inputs) TF_OpDefinitionBuilderAddInput(builder, spec);
    for (const char* spec : op.outputs) TF_OpDefinitionBuilderAddOutput(builder, spec);
    // The call makes the op stateful whatever its argument is.
    if (op.is_stateful) TF_OpDefinitionBuilderSetIsStateful(builder, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, op.infer_shapes);
    TF_Status* status = TF_NewStatus();
    TF_RegisterOpDefinition(builder, status);
    const std::string problem = TF_GetCode(status) == TF_OK ? "" : TF_Message(status);
    TF_DeleteStatus(status);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace rueda::tensorflow
