/* librueda: the C interface of a training process to its node's Rueda daemon.
 *
 * The process is one rank of a job that ruedarun started (or that an operator registered), and
 * finds its place in the environment: RUEDA_SOCKET, RUEDA_JOB_ID, RUEDA_JOB_TOKEN, RANK,
 * LOCAL_RANK.
 *
 * Errors: functions return 0 or a negative RUEDA_ERR_*; rueda_last_error() has the sentence, per
 * thread. Threads: every function may be called from any thread, except that rueda_init and
 * rueda_shutdown must not run beside another call. The library starts no thread (but one that
 * sleeps, when a stream is told to wait by rueda_device_wait), polls nothing while idle, and links
 * libc and libstdc++ alone.
 *
 * Memory: an allreduce reads `input` and writes `output` (they may be the same: in place) between
 * the submission and the end of its wait. Buffers from rueda_alloc are read and written where they
 * are; other memory is copied in at submission and out in rueda_wait (rueda_get_stats counts it).
 *
 * Processes: a forked child of an initialised process cannot use the library (it gets
 * RUEDA_ERR_INVALID_ARGUMENT, from rueda_shutdown 0) and does not disturb its parent. A process
 * that exits with status 0, without rueda_shutdown and with nothing in flight, leaves its job
 * cleanly; with another status it counts as lost.
 */
#ifndef RUEDA_RUEDA_H
#define RUEDA_RUEDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RUEDA_API __attribute__((visibility("default")))
#else
#define RUEDA_API
#endif

enum rueda_error {
  RUEDA_OK = 0,
  RUEDA_ERR_INVALID_ARGUMENT = -1,
  RUEDA_ERR_MISMATCH = -2,       /* ranks disagree on shape, dtype, op, root, ... */
  RUEDA_ERR_DUPLICATE_NAME = -3, /* the name is already in flight on this rank */
  RUEDA_ERR_TIMEOUT = -4,
  RUEDA_ERR_RANK_LOST = -5,
  RUEDA_ERR_NODE_LOST = -6,
  RUEDA_ERR_DAEMON_LOST = -7,
  RUEDA_ERR_SHUT_DOWN = -8,
  RUEDA_ERR_VERSION = -9,
  RUEDA_ERR_PERMISSION = -10,
  RUEDA_ERR_NOT_FOUND = -11,
  RUEDA_ERR_RESOURCE_EXHAUSTED = -12,
  RUEDA_ERR_UNAVAILABLE = -13,
  RUEDA_ERR_INTERNAL = -14
};

typedef enum rueda_dtype {
  RUEDA_FLOAT32 = 0,
  RUEDA_FLOAT64 = 1,
  RUEDA_FLOAT16 = 2,
  RUEDA_BFLOAT16 = 3,
  RUEDA_INT32 = 4,
  RUEDA_INT64 = 5,
  RUEDA_INT8 = 6,
  RUEDA_UINT8 = 7,
  RUEDA_BOOL = 8 /* a byte: 0 is false, any other is true, results are 0 or 1 */
} rueda_dtype;

/* Sums and products of integers wrap in the width of their type, and averages are sums that are
   divided: cast to a wider type where they may. Of bool, sum and maximum are or, product and
   minimum are and; it has no average and no scales. */
typedef enum rueda_op {
  RUEDA_SUM = 0,
  RUEDA_AVERAGE = 1, /* integers: the quotient rounded towards zero */
  RUEDA_MIN = 2,
  RUEDA_MAX = 3,
  RUEDA_PRODUCT = 4,
  RUEDA_ADASUM = 5 /* tensor by tensor, by direction; all-reduces of floating point: docs/cpp.md */
} rueda_op;

/* What values are rounded to where they cross the network between nodes: half the bytes for some
   precision. The sums themselves are float32's, and on one node nothing is rounded; every rank gets
   the same bits. docs/cpp.md has the bounds of the error. */
typedef enum rueda_wire_dtype {
  RUEDA_WIRE_SAME = 0, /* nothing is rounded */
  RUEDA_WIRE_FLOAT16 = 1,
  RUEDA_WIRE_BFLOAT16 = 2
} rueda_wire_dtype;

/* One asynchronous operation (or one group). 0 is never a handle. A handle ends with rueda_wait. */
typedef uint64_t rueda_handle;

typedef struct rueda_init_options {
  size_t struct_bytes;   /* sizeof(rueda_init_options) */
  const char* socket;    /* NULL: $RUEDA_SOCKET, else /run/rueda/ruedad.sock; "@name" is abstract */
  const char* job_id;    /* NULL: $RUEDA_JOB_ID */
  const char* job_token; /* hexadecimal; NULL: $RUEDA_JOB_TOKEN */
  int32_t rank;          /* -1: $RANK */
  int32_t local_rank;    /* -1: $LOCAL_RANK */
  int64_t timeout_ms;    /* for all ranks to arrive; 0: $RUEDA_START_TIMEOUT_MS, else 60000 */
} rueda_init_options;

/* Attaches to the node's daemon and waits until every rank of the job has done so. options may be
 * NULL. A second call while initialised does nothing. */
RUEDA_API int rueda_init(const rueda_init_options* options);
/* Waits for what is in flight (5 s at most; RUEDA_ERR_TIMEOUT names what was left), says goodbye,
 * and frees everything but memory from rueda_alloc, which stays readable until its rueda_free.
 * rueda_init may follow. Without a rueda_init before, does nothing. */
RUEDA_API int rueda_shutdown(void);
RUEDA_API int rueda_is_initialized(void);

/* Place in the job; RUEDA_ERR_SHUT_DOWN before rueda_init. cross_rank is the node's index. */
RUEDA_API int rueda_rank(void);
RUEDA_API int rueda_size(void);
RUEDA_API int rueda_local_rank(void);
RUEDA_API int rueda_local_size(void);
RUEDA_API int rueda_cross_rank(void);
RUEDA_API int rueda_cross_size(void);
RUEDA_API const char* rueda_node_id(void);
RUEDA_API const char* rueda_version(void);

/* Memory that the daemon reads and writes where it is (an arena: a sealed memfd, pre-faulted here,
 * so that this process's memory cgroup pays). 64-byte aligned. NULL on error. */
RUEDA_API void* rueda_alloc(size_t bytes);
/* RUEDA_ERR_INVALID_ARGUMENT while an operation uses the memory. Works after rueda_shutdown too.
 * NULL is fine. */
RUEDA_API int rueda_free(void* memory);
/* The first `bytes` of a block as a tensor of DLPack: a DLManagedTensor of uint8 and one dimension,
 * for an array library to take over. It owns the block, too, which ends when rueda_free and the
 * deleter of each of its tensors have been called. The deleter may be called from any thread and at
 * any time, also when the interpreter of a language has ended: it needs none. NULL on error. */
RUEDA_API void* rueda_dlpack(void* memory, size_t bytes);
/* How many tensors of DLPack own the block. */
RUEDA_API int rueda_dlpack_count(const void* memory);

typedef struct rueda_tensor {
  const char* name;     /* the same on all ranks; at most 255 bytes */
  const void* input;    /* elements in C order; input and output may be NULL where they have none */
  void* output;         /* may equal input */
  const int64_t* shape; /* ndim values >= 0 */
  int32_t ndim;         /* 0 to 8; 0: one element */
  rueda_dtype dtype;
  uint32_t process_set; /* among whose ranks; 0: all ranks. All tensors of a group have the same */
} rueda_tensor;

typedef struct rueda_reduce_options {
  size_t struct_bytes; /* sizeof(rueda_reduce_options) */
  rueda_op op;
  double prescale;  /* multiplies each contribution; 1.0: none */
  double postscale; /* multiplies the result; 1.0: none */
  int32_t priority; /* what has more goes first on this node's network, among what is under way; 0
                       for all: what was submitted last, as the next forward pass needs it first.
                       The result does not depend on it, and ranks may differ */
  rueda_wire_dtype wire_dtype; /* float32 tensors only; the same on all ranks */
} rueda_reduce_options;

/* options NULL: average, no scales. The tensors' memory must live until the handle's wait. */
RUEDA_API int rueda_allreduce_async(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                    rueda_handle* handle);
/* The tensors become ready together and are reduced together, whatever their dtypes. `group_name`
 * is the same on all ranks. One handle for all. */
RUEDA_API int rueda_grouped_allreduce_async(const char* group_name, const rueda_tensor* tensors,
                                            size_t count, const rueda_reduce_options* options,
                                            rueda_handle* handle);
/* Every rank's output becomes the root's input. The root is a rank of the job, and in the set. */
RUEDA_API int rueda_broadcast_async(const rueda_tensor* tensor, int root_rank,
                                    rueda_handle* handle);
/* The root's output becomes what an allreduce would give; others have no output. */
RUEDA_API int rueda_reduce_async(const rueda_tensor* tensor, int root_rank,
                                 const rueda_reduce_options* options, rueda_handle* handle);

/* --- Parts. Each rank has a part of the rows, that is, of the first dimension, to itself; parts
 * follow each other in the order of the ranks. The other dimensions are the same on all ranks.
 *
 * Where sizes differ, every rank says those of all, in the same words: RUEDA_ERR_MISMATCH names two
 * that did not. first_dims has one entry for each rank of the process set, splits (of an alltoall)
 * one for each pair: splits[i * size + j] rows go from the i-th rank to the j-th. They are read
 * before the call returns; at most 65536 of them.
 *
 * Memory: input and output lie apart, or the smaller one is this rank's part of the larger one (an
 * alltoall's lie apart). While a rank has joined, these fail on those that submit them. */

/* The output is the inputs of all ranks, one behind the other. tensor->shape is that of this rank's
 * input. first_dims NULL: all ranks have as many rows as this one. */
RUEDA_API int rueda_allgather_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                    rueda_handle* handle);
/* Likewise, at the root alone; others have no output. */
RUEDA_API int rueda_gather_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                 int root_rank, rueda_handle* handle);
/* The output is this rank's part of what an allreduce would give. tensor->shape is that of the
 * input, the same on all ranks. first_dims NULL: as even as can be, the first ranks have one row
 * more. */
RUEDA_API int rueda_reduce_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                         const rueda_reduce_options* options, rueda_handle* handle);
/* The output is this rank's part of the root's input; others have no input, and give its shape. */
RUEDA_API int rueda_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                  int root_rank, rueda_handle* handle);
/* The output is this rank's part of the input of each rank, one behind the other. tensor->shape is
 * that of this rank's input. splits NULL: all ranks have as many rows as this one, and cut them
 * into equal parts. */
RUEDA_API int rueda_alltoall_async(const rueda_tensor* tensor, const int64_t* splits,
                                   rueda_handle* handle);

/* Done when every rank has called it. name NULL: "barrier". */
RUEDA_API int rueda_barrier_async(const char* name, rueda_handle* handle);

/* Likewise among the ranks of a process set. */
RUEDA_API int rueda_process_set_barrier_async(uint32_t process_set, const char* name,
                                              rueda_handle* handle);

/* --- Uneven inputs. A rank that has no more data joins. Until all ranks of the job have joined,
 * the others' operations go on, in all process sets, and this rank contributes zeros; averages
 * divide by all ranks. What it submitted before goes with its values. Its join ends when all ranks
 * have joined and nothing is under way, and the result's `value` is the last rank that did so.
 *
 * Meanwhile the rank may submit nothing, and what zeros would spoil fails with
 * RUEDA_ERR_INVALID_ARGUMENT on the ranks that submit it: all but allreduces of sums, averages and
 * Adasum, and barriers. */
RUEDA_API int rueda_join_async(rueda_handle* handle);

/* --- Process sets: ranks that reduce among themselves, beside the others and without waiting for
 * them. Set 0 has all ranks, and is always there. */

/* Adds a set, which may have no rank. Every rank of the job calls it, with the same ranks in any
 * order; the calling rank need not be one of them. Waits for all ranks, as long as it takes. *id is
 * the same on all of them. RUEDA_ERR_INVALID_ARGUMENT for a rank twice or one that the job does not
 * have, or for ranks that are a set already; RUEDA_ERR_MISMATCH names two ranks that gave different
 * ones; RUEDA_ERR_RESOURCE_EXHAUSTED beyond 64 sets at a time, or 1020 ranks in one. */
RUEDA_API int rueda_process_set_add(const int32_t* ranks, int32_t count, uint32_t* id);
/* Removes it, on every rank of the job, when nothing of this rank is in flight in it. Its id does
 * not come again. */
RUEDA_API int rueda_process_set_remove(uint32_t id);
/* How many ranks it has, or an error: RUEDA_ERR_NOT_FOUND if there is none, as this process knows
 * it. */
RUEDA_API int rueda_process_set_size(uint32_t id);
/* This rank's place among the set's, in ascending order; -1 if it is not one of them. */
RUEDA_API int rueda_process_set_rank(uint32_t id, int32_t* rank);
/* The set's ranks, ascending; `ranks` has room for rueda_process_set_size(id). */
RUEDA_API int rueda_process_set_ranks(uint32_t id, int32_t* ranks);

/* --- Plans declared ahead */

/* A tensor that every training step reduces, by an allreduce. */
typedef struct rueda_planned_tensor {
  rueda_tensor tensor;                 /* input and output are not looked at; process_set 0 */
  const rueda_reduce_options* options; /* as it will be submitted; NULL: average, no scales */
  const char* group_name; /* as it will be submitted; a group's tensors follow each other; NULL:
                             no group */
  /* Which tensors' results it is computed from: their places in the list, each before its own. It
   * never shares an operation with them, nor waits in one for them. */
  const uint32_t* after;
  size_t after_count;
} rueda_planned_tensor;

/* Says what a step consists of before there has been one: all its allreduces, in the order in which
 * they are expected to be ready. Every rank of the job calls it, with the same list, before its
 * first step or between two, and waits for all others. From then on no message about order is sent
 * (under the coordination `locked`, the default; others take no notice).
 *
 * A plan that turns out wrong does no harm: when ranks do something else, the daemons say so in the
 * log and in rueda_plans_abandoned_total, and learn the schedule by themselves.
 *
 * RUEDA_ERR_INVALID_ARGUMENT names the tensor that is wrong in the list; RUEDA_ERR_MISMATCH, on all
 * ranks, names two ranks that declared different plans, and the first difference, or what is wrong
 * with the plan of one. */
RUEDA_API int rueda_plan_declare(const rueda_planned_tensor* tensors, size_t count);

/* What an operation's end says of it; for a group, of its last tensor. */
typedef struct rueda_result {
  uint32_t epoch;        /* membership it was carried out in */
  uint32_t contributors; /* ranks whose values are in the result */
  uint64_t seq;          /* operation number in the process set; 0: it never got one */
  uint32_t value;        /* of a join: the last rank that joined */
} rueda_result;

/* Waits for the end, sleeping. timeout_ms < 0: as long as it takes; RUEDA_ERR_TIMEOUT leaves the
 * operation in flight and the handle valid, any other return ends the handle. result may be NULL.
 */
RUEDA_API int rueda_wait(rueda_handle handle, int64_t timeout_ms, rueda_result* result);
/* Waits until one of them has ended, and gives its place: rueda_wait returns at once for it. None
 * is taken away. timeout_ms as for rueda_wait. */
RUEDA_API int rueda_wait_any(const rueda_handle* handles, size_t count, int64_t timeout_ms,
                             size_t* index);
/* *done = 1 if rueda_wait would return at once. */
RUEDA_API int rueda_test(rueda_handle handle, int* done);

/* The blocking forms: async, then wait. After RUEDA_ERR_TIMEOUT the operation goes on without its
 * caller: foreign memory is not touched any more, rueda_alloc's is in use until the end. */
RUEDA_API int rueda_allreduce(const rueda_tensor* tensor, const rueda_reduce_options* options,
                              int64_t timeout_ms);
RUEDA_API int rueda_broadcast(const rueda_tensor* tensor, int root_rank, int64_t timeout_ms);
RUEDA_API int rueda_reduce(const rueda_tensor* tensor, int root_rank,
                           const rueda_reduce_options* options, int64_t timeout_ms);
RUEDA_API int rueda_allgather(const rueda_tensor* tensor, const int64_t* first_dims,
                              int64_t timeout_ms);
RUEDA_API int rueda_gather(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                           int64_t timeout_ms);
RUEDA_API int rueda_reduce_scatter(const rueda_tensor* tensor, const int64_t* first_dims,
                                   const rueda_reduce_options* options, int64_t timeout_ms);
RUEDA_API int rueda_scatter(const rueda_tensor* tensor, const int64_t* first_dims, int root_rank,
                            int64_t timeout_ms);
RUEDA_API int rueda_alltoall(const rueda_tensor* tensor, const int64_t* splits, int64_t timeout_ms);
RUEDA_API int rueda_barrier(const char* name, int64_t timeout_ms);
/* After RUEDA_ERR_TIMEOUT the rank has joined all the same. last_rank may be NULL. */
RUEDA_API int rueda_join(int64_t timeout_ms, int32_t* last_rank);

/* --- Tensors in device memory. All-reduces, but for Adasum, and broadcasts of what lies in a GPU's
 * memory; all ranks submit it from there, or RUEDA_ERR_MISMATCH names two that did not. The node's
 * daemon has a GPU worker reduce it; what goes to other nodes goes through host memory or NCCL. The
 * CUDA driver is loaded (libcuda.so.1, or $RUEDA_CUDA_LIBRARY) when the first one comes.
 *
 * input and output lie each in one allocation that other processes can have: cudaMalloc's, or of
 * virtual memory management with descriptors. Of the latter they may lie in several that are mapped
 * one behind another. The worker opens an allocation once, when it sees the first tensor in it.
 * What it cannot open, as in another container, goes through pinned host memory, at most
 * $RUEDA_DEVICE_STAGING_BYTES (1 GiB); that is said once on standard error, and is slower. Then a
 * submission may wait for room, and rueda_wait for a copy to the device.
 *
 * Errors beside those of the host's forms: RUEDA_ERR_INVALID_ARGUMENT for memory that cannot be
 * shared, and on several nodes with --reducer device; RUEDA_ERR_UNAVAILABLE without a driver here
 * or at the daemon, or when the job's worker has died; RUEDA_ERR_RESOURCE_EXHAUSTED for more than
 * may be pinned. Host memory goes on. A worker that dies while it carries something out ends the
 * job. */

/* The inputs are there already. Else `stream` is a CUstream (NULL: the default one), and they are
 * there when it has done what it has at the time of the call. */
#define RUEDA_NO_STREAM ((void*)-1)

/* As rueda_allreduce_async and so on. Return without waiting for the stream or other ranks. What
 * is submitted with a stream while streams wait by rueda_device_wait begins after these waits. The
 * first call of a process waits for the worker's start. Until the operation has ended, inputs and
 * outputs are left alone and stay allocated. A stream from which a CUDA graph is captured is
 * refused, here and by rueda_device_wait: RUEDA_ERR_INVALID_ARGUMENT. */
RUEDA_API int rueda_device_allreduce_async(const rueda_tensor* tensor,
                                           const rueda_reduce_options* options, void* stream,
                                           rueda_handle* handle);
RUEDA_API int rueda_device_grouped_allreduce_async(const char* group_name,
                                                   const rueda_tensor* tensors, size_t count,
                                                   const rueda_reduce_options* options,
                                                   void* stream, rueda_handle* handle);
RUEDA_API int rueda_device_broadcast_async(const rueda_tensor* tensor, int root_rank, void* stream,
                                           rueda_handle* handle);
/* What the stream is given after this begins when the operation has ended; the host does not wait.
 * If it fails, or the daemon or the worker dies, the stream goes on all the same, and the outputs
 * are worth nothing: rueda_wait, which ends the handle here, too, says so. */
RUEDA_API int rueda_device_wait(rueda_handle handle, void* stream);
/* The allocation that this address lies in is about to be freed: the daemon lets go of it. For
 * hooks of allocators; without the call it does when its address comes again. Addresses that are
 * not known are fine. RUEDA_ERR_INVALID_ARGUMENT, which names a tensor, while an operation in
 * flight uses it. */
RUEDA_API int rueda_device_forget(const void* memory);
/* 1: rueda_device_forget is called before any device memory of this process is freed. Then the
 * driver is not asked at each use of an allocation whether it is still the same, but now and then;
 * a promise that was not kept is said on standard error, and ends that. 0, as at first: it is asked
 * each time. Reducing memory that was freed without a word costs the job its GPU worker. */
RUEDA_API int rueda_device_announce_frees(int are_announced);

typedef struct rueda_device_stats {
  uint64_t submissions;        /* tensors in device memory */
  uint64_t cache_hits;         /* inputs and outputs whose allocations the daemon knew */
  uint64_t cache_misses;       /* and of whose it had to be told something */
  uint64_t recycled_addresses; /* of these, those where another allocation had been known */
  uint64_t allocations;        /* known now */
  uint64_t stream_waits;       /* tensors that a stream was told to wait for */
  uint64_t buffer_checks;      /* how often the driver was asked whether memory is still the same */
  uint64_t
      staged_submissions; /* tensors that went through host memory on their way to the worker */
} rueda_device_stats;
RUEDA_API int rueda_get_device_stats(rueda_device_stats* stats);

/* Begins a timeline of the whole job (docs/timeline.md): the launcher of node 0 writes the file, so
 * the path is of that node, and absolute. Any rank may begin and end it, and one is enough; the
 * file is whole a moment after its end. RUEDA_ERR_INVALID_ARGUMENT on node 0 if one is being
 * written already, or none. */
enum { RUEDA_TIMELINE_CHUNKS = 1 }; /* flags: with a mark for each chunk that comes */
RUEDA_API int rueda_timeline_start(const char* path, uint32_t flags);
RUEDA_API int rueda_timeline_stop(void);

/* With ruedarun --check-finite, or RUEDA_CHECK_FINITE=1: a NaN or an infinity that a rank
 * contributed to an allreduce, a reduce or a reduce-scatter, before all others. All ranks are told
 * of the same one, and each says so on its standard error. */
enum { RUEDA_VALUE_NAN = 0, RUEDA_VALUE_INFINITY = 1, RUEDA_VALUE_MINUS_INFINITY = 2 };
typedef struct rueda_nonfinite {
  char tensor[256];     /* its name */
  int32_t rank;         /* which had it */
  uint32_t process_set; /* in which it was reduced */
  uint64_t step;        /* how often the rank had submitted a reduction of this name, from 1 */
  uint64_t element;     /* of the rank's input, from 0 */
  int32_t value;        /* RUEDA_VALUE_* */
} rueda_nonfinite;
/* 1: there is one, and here it is; 0: none that this process has been told of. Never waits. */
RUEDA_API int rueda_first_nonfinite(rueda_nonfinite* first);

/* The last error of this thread, one sentence; "" if there was none. Valid until the next call. */
RUEDA_API const char* rueda_last_error(void);
/* "RUEDA_ERR_MISMATCH" for -2. */
RUEDA_API const char* rueda_error_name(int error);

typedef struct rueda_stats {
  uint64_t submissions;
  uint64_t completions;
  uint64_t bytes_copied_in;  /* foreign memory into the arena */
  uint64_t bytes_copied_out; /* and back */
  uint64_t arena_bytes;      /* mapped now */
} rueda_stats;
RUEDA_API int rueda_get_stats(rueda_stats* stats);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RUEDA_RUEDA_H */
