// Compares the declarations that librueda_tensorflow.so is built with (client/tensorflow/tf_abi.h)
// with the headers of a wheel of TensorFlow: it compiles where they are the same.
// tests/tensorflow/abi_test.py compiles it.
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_datatype.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"
// This comes last: what has been declared differently by now is an error.
#include "client/tensorflow/tf_abi.h"

static_assert(TF_OK == 0 && TF_INVALID_ARGUMENT == 3 && TF_ABORTED == 10);
static_assert(TF_FLOAT == 1 && TF_DOUBLE == 2 && TF_INT32 == 3 && TF_UINT8 == 4 && TF_INT8 == 6);
static_assert(TF_INT64 == 9 && TF_BOOL == 10 && TF_BFLOAT16 == 14 && TF_HALF == 19);
static_assert(TF_INT16 == 5 && TF_UINT16 == 17 && TF_UINT32 == 22 && TF_UINT64 == 23);
static_assert(TF_COMPLEX64 == 8 && TF_COMPLEX128 == 18);
static_assert(sizeof(TF_DataType) == sizeof(int) && sizeof(TF_Code) == sizeof(int));
