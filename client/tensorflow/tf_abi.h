// The part of TensorFlow's C API for ops and kernels that librueda_tensorflow.so uses, as it is in
// TensorFlow 2.15 to 2.21: the library is built without TensorFlow, and one file serves all of
// them. tests/tensorflow/abi_test.py compiles this file beside a wheel's own headers, which fails
// where the two differ, and looks for the names in the wheel's library.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;

// TensorFlow's own headers have these three already, where the test includes them first.
#ifndef TENSORFLOW_C_TF_STATUS_H_
struct TF_Status;
enum TF_Code : unsigned int { TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_ABORTED = 10 };
#endif
#ifndef TENSORFLOW_C_TF_DATATYPE_H_
enum TF_DataType : unsigned int {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT16 = 5,
  TF_INT8 = 6,
  TF_COMPLEX64 = 8,
  TF_INT64 = 9,
  TF_BOOL = 10,
  TF_BFLOAT16 = 14,
  TF_UINT16 = 17,
  TF_COMPLEX128 = 18,
  TF_HALF = 19,
  TF_UINT32 = 22,
  TF_UINT64 = 23
};
#endif

TF_Status* TF_NewStatus(void);
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, TF_Code code, const char* message);
TF_Code TF_GetCode(const TF_Status* status);
const char* TF_Message(const TF_Status* status);

// Takes the memory over: the deallocator is called when the last tensor that uses it has gone, or
// at once, after a copy, if the address is no multiple of 64.
TF_Tensor* TF_NewTensor(TF_DataType type, const int64_t* dims, int num_dims, void* data, size_t len,
                        void (*deallocator)(void* data, size_t len, void* arg),
                        void* deallocator_arg);
TF_Tensor* TF_AllocateTensor(TF_DataType type, const int64_t* dims, int num_dims, size_t len);
void TF_DeleteTensor(TF_Tensor* tensor);
TF_DataType TF_TensorType(const TF_Tensor* tensor);
int TF_NumDims(const TF_Tensor* tensor);
int64_t TF_Dim(const TF_Tensor* tensor, int dim_index);
size_t TF_TensorByteSize(const TF_Tensor* tensor);
void* TF_TensorData(const TF_Tensor* tensor);

// The caller owns the tensor that it gets. It shares the memory of the input.
void TF_GetInput(TF_OpKernelContext* context, int i, TF_Tensor** tensor, TF_Status* status);
void TF_SetOutput(TF_OpKernelContext* context, int i, const TF_Tensor* tensor, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);

void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* context, TF_Status* status);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction* context, const char* attr_name,
                                         int32_t* list_size, int32_t* total_size,
                                         TF_Status* status);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction* context, const char* attr_name,
                                          int64_t* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction* context, const char* attr_name,
                                           char* value, size_t max_length, TF_Status* status);
void TF_OpKernelConstruction_GetAttrStringList(TF_OpKernelConstruction* context,
                                               const char* attr_name, char** values,
                                               size_t* lengths, int max_values, void* storage,
                                               size_t storage_size, TF_Status* status);

TF_KernelBuilder* TF_NewAsyncKernelBuilder(
    const char* op_name, const char* device_name, void* (*create)(TF_OpKernelConstruction*),
    void (*compute_async)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback* done),
    void (*destroy)(void*));
// Takes the builder over.
void TF_RegisterKernelBuilder(const char* kernel_name, TF_KernelBuilder* builder,
                              TF_Status* status);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* op_name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder* builder, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder* builder,
                                                     void (*infer)(TF_ShapeInferenceContext*,
                                                                   TF_Status*));
// Takes the builder over.
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);

int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext* context);
TF_ShapeHandle* TF_NewShapeHandle();
void TF_DeleteShapeHandle(TF_ShapeHandle* handle);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext* context, int i,
                                      TF_ShapeHandle* handle, TF_Status* status);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext* context, int i,
                                       TF_ShapeHandle* handle, TF_Status* status);
TF_ShapeHandle* TF_ShapeInferenceContextScalar(TF_ShapeInferenceContext* context);
TF_ShapeHandle* TF_ShapeInferenceContextVectorFromSize(TF_ShapeInferenceContext* context,
                                                       size_t size);
int TF_ShapeInferenceContextRankKnown(TF_ShapeInferenceContext* context, TF_ShapeHandle* handle);
void TF_ShapeInferenceContextWithRankAtLeast(TF_ShapeInferenceContext* context,
                                             TF_ShapeHandle* handle, int64_t rank,
                                             TF_ShapeHandle* result, TF_Status* status);
void TF_ShapeInferenceContextSubshape(TF_ShapeInferenceContext* context, TF_ShapeHandle* handle,
                                      int64_t start, int64_t end, TF_ShapeHandle* result,
                                      TF_Status* status);
void TF_ShapeInferenceContextConcatenateShapes(TF_ShapeInferenceContext* context,
                                               TF_ShapeHandle* first, TF_ShapeHandle* second,
                                               TF_ShapeHandle* result, TF_Status* status);

}  // extern "C"
