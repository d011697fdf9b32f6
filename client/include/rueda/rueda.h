/* librueda: the C interface of a training process to its node's Rueda daemon.
 *
 * The process is one rank of a job that ruedarun started (or that an operator registered), and
 * finds its place in the environment: RUEDA_SOCKET, RUEDA_JOB_ID, RANK, LOCAL_RANK, and its token.
 * That is behind a descriptor, whose number is in RUEDA_JOB_TOKEN_FD: the first rueda_init reads
 * and closes it, removes the variable, and keeps the token for later ones. A launcher may set
 * RUEDA_JOB_TOKEN instead. Only the one rank can be attached with the token.
 *
 * Errors: functions that return int return a negative RUEDA_ERR_* on failure, and otherwise 0 or
 * the value that they are asked for; rueda_last_error() then has a sentence about the last call of
 * the same thread.
 *
 * Threads: every function may be called from any thread, except that rueda_init and rueda_shutdown
 * must not run beside another call. The library polls nothing while idle, and starts no thread,
 * except for one that sleeps once a stream has been told to wait by rueda_device_wait, and one that
 * sleeps, and calls back, once rueda_then has been called. It links libc and libstdc++ alone.
 *
 * Memory: an allreduce reads `input` and writes `output` (they may be the same: in place) between
 * the submission and the end of its wait, or the call of its callback (rueda_then). The daemon
 * reads and writes buffers from rueda_alloc where they are; other memory is copied in at submission
 * and out in rueda_wait or before the callback (rueda_get_stats counts the bytes copied). The
 * caller owns all memory that it passes in.
 *
 * Processes: a forked child of an initialised process cannot use the library (its calls return
 * RUEDA_ERR_INVALID_ARGUMENT, but rueda_shutdown 0) and does not disturb its parent. A process that
 * exits with status 0, without rueda_shutdown and with nothing in flight, leaves its job cleanly;
 * with another status it counts as lost. */
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
  RUEDA_BOOL = 8, /* one byte: 0 is false, any other value is true, results are 0 or 1 */
  RUEDA_INT16 = 9,
  RUEDA_UINT16 = 10,
  RUEDA_UINT32 = 11,
  RUEDA_UINT64 = 12,
  RUEDA_COMPLEX64 = 13, /* two floats: the real part, then the imaginary part */
  RUEDA_COMPLEX128 = 14 /* two doubles */
} rueda_dtype;

/* The operator of a reduction. Sums and products of integers wrap in the width of their type, and
 * so do averages, which are divided sums: cast to a wider type where a sum may not fit. For bool,
 * sum and maximum are a logical or, product and minimum a logical and; bool has no average and no
 * scales. Complex numbers have no order, and so no minimum, no maximum and no Adasum; their scales
 * are real numbers. */
typedef enum rueda_op {
  RUEDA_SUM = 0,
  RUEDA_AVERAGE = 1, /* for integers, the quotient is rounded towards zero */
  RUEDA_MIN = 2,
  RUEDA_MAX = 3,
  RUEDA_PRODUCT = 4,
  /* Adasum combines each tensor by the direction of its contributions; it is there for all-reduces
   * of floating point (docs/cpp.md) */
  RUEDA_ADASUM = 5
} rueda_op;

/* The type that values are rounded to where they cross the network between nodes, which halves the
 * bytes and costs some precision. The sums themselves are float32's, and on one node nothing is
 * rounded; every rank gets the same bits. docs/cpp.md has the bounds of the error. */
typedef enum rueda_wire_dtype {
  RUEDA_WIRE_SAME = 0, /* nothing is rounded */
  RUEDA_WIRE_FLOAT16 = 1,
  RUEDA_WIRE_BFLOAT16 = 2
} rueda_wire_dtype;

/* A handle stands for one asynchronous operation, or for one group of them. 0 is never a handle. A
 * handle is valid until rueda_wait has ended it, or its callback is called (rueda_then). */
typedef uint64_t rueda_handle;

typedef struct rueda_init_options {
  size_t struct_bytes; /* must be sizeof(rueda_init_options) */
  /* the daemon's socket, "@name" if abstract; NULL: $RUEDA_SOCKET, else /run/rueda/ruedad.sock */
  const char* socket;
  const char* job_id;    /* NULL: $RUEDA_JOB_ID */
  const char* job_token; /* of this rank, in hexadecimal; NULL: from the environment */
  int32_t rank;          /* -1: $RANK */
  int32_t local_rank;    /* -1: $LOCAL_RANK */
  int64_t timeout_ms;    /* limit for all ranks to arrive; 0: $RUEDA_START_TIMEOUT_MS, else 60000 */
} rueda_init_options;

/* Attaches to the node's daemon and waits until every rank of the job has done so. `options` may be
 * NULL: everything then comes from the environment. A second call while initialised does nothing.
 */
RUEDA_API int rueda_init(const rueda_init_options* options);
/* Waits for operations in flight (5 s at most; RUEDA_ERR_TIMEOUT names those that were left),
 * leaves the job, waits until all callbacks of rueda_then have returned, and frees everything but
 * memory from rueda_alloc, which stays readable until its rueda_free. rueda_init may follow. The
 * call does nothing if rueda_init has not been called. */
RUEDA_API int rueda_shutdown(void);
RUEDA_API int rueda_is_initialized(void);

/* These functions give the process's place in the job, or RUEDA_ERR_SHUT_DOWN before rueda_init.
 * cross_rank is the index of the node, cross_size the number of nodes. rueda_node_id is "" before
 * rueda_init. */
RUEDA_API int rueda_rank(void);
RUEDA_API int rueda_size(void);
RUEDA_API int rueda_local_rank(void);
RUEDA_API int rueda_local_size(void);
RUEDA_API int rueda_cross_rank(void);
RUEDA_API int rueda_cross_size(void);
RUEDA_API const char* rueda_node_id(void);
RUEDA_API const char* rueda_version(void);

/* Allocates memory that the daemon reads and writes where it is (an arena: a sealed memfd,
 * pre-faulted here, so that this process's memory cgroup pays). The memory is 64-byte aligned, and
 * the caller frees it by rueda_free. Returns NULL on error. */
RUEDA_API void* rueda_alloc(size_t bytes);
/* Frees memory from rueda_alloc, also after rueda_shutdown; NULL is ignored. Returns
 * RUEDA_ERR_INVALID_ARGUMENT while an operation uses the memory. */
RUEDA_API int rueda_free(void* memory);
/* Wraps the first `bytes` bytes of a block from rueda_alloc as a DLPack tensor: a DLManagedTensor
 * of uint8 with one dimension, for an array library to take over. The tensor shares ownership of
 * the block, which is freed when rueda_free and the deleters of all its tensors have been called.
 * The deleter may be called from any thread and at any time, also when the interpreter of a
 * language has ended: it needs no interpreter. Returns NULL on error. */
RUEDA_API void* rueda_dlpack(void* memory, size_t bytes);
/* Returns how many DLPack tensors share ownership of the block. */
RUEDA_API int rueda_dlpack_count(const void* memory);

typedef struct rueda_tensor {
  const char* name; /* the same on all ranks; at most 255 bytes */
  /* elements in C order; input and output may be NULL on a rank that has no elements of them */
  const void* input;
  void* output;         /* may equal input */
  const int64_t* shape; /* ndim values >= 0 */
  int32_t ndim;         /* 0 to 8; a tensor of 0 dimensions has one element */
  rueda_dtype dtype;
  /* the set whose ranks take part; 0: all ranks. All tensors of a group are in the same set */
  uint32_t process_set;
} rueda_tensor;

typedef struct rueda_reduce_options {
  size_t struct_bytes; /* must be sizeof(rueda_reduce_options) */
  rueda_op op;
  double prescale;  /* factor on each rank's contribution; 1.0: none */
  double postscale; /* factor on the result; 1.0: none */
  /* Among the operations under way, those with a higher priority go first on this node's network.
   * Where priorities are equal (0 by default), the operation submitted last goes first, as the next
   * forward pass needs it first. The result does not depend on the priority, and ranks may differ.
   */
  int32_t priority;
  rueda_wire_dtype wire_dtype; /* for float32 tensors only; the same on all ranks */
} rueda_reduce_options;

/* Submits an all-reduce. `options` NULL means an average without scales. The tensor's memory must
 * live until the wait for the handle has returned. */
RUEDA_API int rueda_allreduce_async(const rueda_tensor* tensor, const rueda_reduce_options* options,
                                    rueda_handle* handle);
/* Submits several all-reduces that become ready together and are reduced together, whatever their
 * dtypes. `group_name` is the same on all ranks. One handle stands for all of them. */
RUEDA_API int rueda_grouped_allreduce_async(const char* group_name, const rueda_tensor* tensors,
                                            size_t count, const rueda_reduce_options* options,
                                            rueda_handle* handle);
/* Submits a broadcast: every rank's output becomes the root's input. `root_rank` is a rank of the
 * job (not a place in the process set), and must be in the process set. */
RUEDA_API int rueda_broadcast_async(const rueda_tensor* tensor, int root_rank,
                                    rueda_handle* handle);
/* Submits a reduce: the root's output becomes what an all-reduce would give; other ranks have no
 * output. */
RUEDA_API int rueda_reduce_async(const rueda_tensor* tensor, int root_rank,
                                 const rueda_reduce_options* options, rueda_handle* handle);

/* --- Collectives with parts. Each rank has a part of the rows, that is, of the first dimension, to
 * itself; parts follow each other in the order of the ranks. The other dimensions are the same on
 * all ranks.
 *
 * Where the parts differ in size, every rank gives the sizes of all parts, and all ranks must give
 * equal lists: otherwise RUEDA_ERR_MISMATCH names two that did not. first_dims has one entry for
 * each rank of the process set; splits (of an alltoall) has one for each pair of ranks: splits[i *
 * size + j] rows go from the i-th rank to the j-th. The lists are read before the call returns, and
 * have at most 65536 entries.
 *
 * Memory: input and output do not overlap, or the smaller one is this rank's part of the larger one
 * (an alltoall's input and output never overlap). While a rank has joined, these collectives fail
 * on the ranks that submit them. */

/* Submits an all-gather: the output is the inputs of all ranks, one behind the other. tensor->shape
 * is the shape of this rank's input. `first_dims` NULL means that all ranks have as many rows as
 * this rank. */
RUEDA_API int rueda_allgather_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                    rueda_handle* handle);
/* Submits a gather: as rueda_allgather_async, but only the root has an output. */
RUEDA_API int rueda_gather_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                 int root_rank, rueda_handle* handle);
/* Submits a reduce-scatter: the output is this rank's part of what an all-reduce would give.
 * tensor->shape is the shape of the input, the same on all ranks. `first_dims` NULL means parts as
 * even as can be: if the rows do not divide evenly, each of the first ranks has one row more. */
RUEDA_API int rueda_reduce_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                         const rueda_reduce_options* options, rueda_handle* handle);
/* Submits a scatter: the output is this rank's part of the root's input. Other ranks have no input,
 * and give the shape of the root's. `first_dims` is as for rueda_reduce_scatter_async. */
RUEDA_API int rueda_scatter_async(const rueda_tensor* tensor, const int64_t* first_dims,
                                  int root_rank, rueda_handle* handle);
/* Submits an all-to-all: the output is this rank's part of the input of each rank, one behind the
 * other. tensor->shape is the shape of this rank's input. `splits` NULL means that all ranks have
 * as many rows as this rank, and cut them into equal parts. */
RUEDA_API int rueda_alltoall_async(const rueda_tensor* tensor, const int64_t* splits,
                                   rueda_handle* handle);

/* Submits a barrier, which ends when every rank has called it. `name` NULL means "barrier". */
RUEDA_API int rueda_barrier_async(const char* name, rueda_handle* handle);

/* Submits a barrier among the ranks of a process set. */
RUEDA_API int rueda_process_set_barrier_async(uint32_t process_set, const char* name,
                                              rueda_handle* handle);

/* --- Point to point. One rank sends elements, and another one, or the same, receives them, through
 * the daemons; no other rank takes part. A send and a receive match if they name each other's
 * ranks, and have the same tag and the same process set. Of several that match, the first send goes
 * to the first receive, in the order in which each rank submitted its own. Both must have the same
 * dtype and count: otherwise RUEDA_ERR_MISMATCH, which names both ranks and both sizes, ends both.
 *
 * Transfers have no name, take no part in the order of the collectives and do not wait for them.
 * Any number may be under way at once, between the same ranks and in both directions, and they may
 * be waited for in any order. A send ends when its receive was submitted and the data has left this
 * rank's memory (a rendezvous): where two ranks send to each other, both submit their receives
 * before they wait for their sends. A transfer that needs a rank that has said goodbye fails with
 * RUEDA_ERR_SHUT_DOWN. In an elastic job, transfers under way end with the error that ends the
 * epoch.
 *
 * The memory is the host's: copy what is in device memory to the host first. Memory from
 * rueda_alloc is read and written where it is. */
#define RUEDA_ANY_SOURCE (-1)

/* Submits a send of `count` >= 0 elements to the rank `destination` of the job (not a place in the
 * process set), which must be in the process set, as this rank must be; it may be this rank. Any
 * `tag` is allowed. `data` may be NULL if count is 0; it must live, and must not change, until the
 * wait for the handle has returned. The result's `value` is the destination. */
RUEDA_API int rueda_send_async(const void* data, int64_t count, rueda_dtype dtype, int destination,
                               int64_t tag, uint32_t process_set, rueda_handle* handle);
/* Submits a receive of `count` >= 0 elements from the rank `source`, or with RUEDA_ANY_SOURCE from
 * any rank of the process set: then it takes the first send with its tag that this rank's node
 * hears of, whoever sends it. `data` must live until the wait for the handle has returned. The
 * result's `value` is the rank that sent the data. */
RUEDA_API int rueda_recv_async(void* data, int64_t count, rueda_dtype dtype, int source,
                               int64_t tag, uint32_t process_set, rueda_handle* handle);

/* Takes back a send or a receive that is not needed any more, and does not wait. If it has met no
 * other half when the daemons hear of it, it ends with RUEDA_ERR_UNAVAILABLE, without having moved
 * data, and what another rank submits later does not meet it. Otherwise, or if it has ended, it
 * ends as it would have. Either way the handle stays valid, and is waited for: only its end says
 * what came of it, and when the memory is the caller's again. Returns RUEDA_ERR_INVALID_ARGUMENT
 * for an unknown handle, and for one of anything else. */
RUEDA_API int rueda_cancel(rueda_handle transfer);

/* --- Uneven inputs. A rank that has no more data joins. Until all ranks of the job have joined,
 * the operations of the others go on, in all process sets, and this rank contributes zeros;
 * averages divide by the number of all ranks. Operations that this rank submitted before it joined
 * go on with their values. The join ends when all ranks have joined and nothing is under way; its
 * result's `value` is the last rank that joined.
 *
 * Meanwhile the rank may submit nothing. Operations that zeros would falsify fail with
 * RUEDA_ERR_INVALID_ARGUMENT on the ranks that submit them: all but barriers and the all-reduces by
 * sum, average and Adasum. */
RUEDA_API int rueda_join_async(rueda_handle* handle);

/* --- Process sets are groups of ranks that reduce among themselves, beside the others and without
 * waiting for them. Set 0 has all ranks, and is always there. */

/* Adds a process set, which may have no rank. Every rank of the job makes this call, with the same
 * ranks in any order; the calling rank need not be in the set. The call waits for all ranks,
 * without a time limit. *id is the same on all of them. It returns RUEDA_ERR_INVALID_ARGUMENT if a
 * rank is given twice or is not in the job, or if there is a set of the same ranks already;
 * RUEDA_ERR_MISMATCH, which names two ranks, if ranks gave different sets;
 * RUEDA_ERR_RESOURCE_EXHAUSTED beyond 64 sets at a time, or 1020 ranks in a set. */
RUEDA_API int rueda_process_set_add(const int32_t* ranks, int32_t count, uint32_t* id);
/* Removes a process set. Every rank of the job makes this call, when nothing that it submitted is
 * in flight in the set. The id is not used again. */
RUEDA_API int rueda_process_set_remove(uint32_t id);
/* Returns how many ranks the set has, or RUEDA_ERR_NOT_FOUND if this process knows no such set. */
RUEDA_API int rueda_process_set_size(uint32_t id);
/* Gives this rank's place among the ranks of the set, which are in ascending order from place 0;
 * *rank is -1 if it is not in the set. */
RUEDA_API int rueda_process_set_rank(uint32_t id, int32_t* rank);
/* Writes the set's ranks in ascending order; `ranks` must have room for rueda_process_set_size(id)
 * values. */
RUEDA_API int rueda_process_set_ranks(uint32_t id, int32_t* ranks);

/* --- Plans declared ahead */

/* A planned tensor is one that every training step reduces by an all-reduce. */
typedef struct rueda_planned_tensor {
  rueda_tensor tensor; /* input and output are ignored; process_set must be 0 */
  /* the options it will be submitted with; NULL: average, no scales */
  const rueda_reduce_options* options;
  /* the group it will be submitted in, whose tensors follow each other here; NULL: no group */
  const char* group_name;
  /* The places in the list of the tensors whose results this tensor is computed from, each before
   * its own place. The tensor never shares an operation with any that it depends on, directly or
   * through others. */
  const uint32_t* after;
  size_t after_count;
  /* 1: it will be submitted by rueda_device_allreduce_async() or its grouped form; 0: it will be in
   * host memory. In a job whose device memory crosses nodes by NCCL it is in no plan. */
  int32_t is_on_device;
} rueda_planned_tensor;

/* Declares a plan: all all-reduces of a training step, before there has been a step, in the order
 * in which they are expected to be ready. Every rank of the job makes this call, with the same
 * list, before its first step or between two, and waits for all others. From then on no message
 * about order is sent (under the coordination `locked`, which is the default; under the others the
 * plan has no effect).
 *
 * A plan that turns out wrong does no harm: when ranks do something else, the daemons learn the
 * schedule by themselves, and if that was in the first step, they say so in the log and in
 * rueda_plans_abandoned_total.
 *
 * A rank that has no plan where others may have one calls with count 0, so that nobody waits for
 * it: where all ranks have none nothing changes, and otherwise they disagree.
 *
 * Returns RUEDA_ERR_INVALID_ARGUMENT, which names the tensor, if the list is wrong. Returns
 * RUEDA_ERR_MISMATCH on all ranks if two ranks declared different plans, and names them and the
 * first difference, or if the plan of a rank is wrong, and says in what. Returns
 * RUEDA_ERR_INVALID_ARGUMENT at once if a rank has joined. */
RUEDA_API int rueda_plan_declare(const rueda_planned_tensor* tensors, size_t count);

/* The result of an operation; for a group, that of its last tensor. */
typedef struct rueda_result {
  uint32_t epoch;        /* epoch (membership of the job) that the operation was carried out in */
  uint32_t contributors; /* number of ranks whose values are in the result */
  uint64_t seq;          /* number of the operation in its process set; 0: it never got a number */
  /* for a join, the last rank that joined; for a send or a receive, the rank at the other end */
  uint32_t value;
} rueda_result;

/* Sleeps until the operation has ended, and returns its error or 0. timeout_ms < 0 means no limit.
 * RUEDA_ERR_TIMEOUT leaves the operation in flight and the handle valid; any other return ends the
 * handle. `result` may be NULL. */
RUEDA_API int rueda_wait(rueda_handle handle, int64_t timeout_ms, rueda_result* result);
/* Waits until one of the operations has ended, and sets *index to its place in `handles`:
 * rueda_wait for that handle then returns at once. No handle is ended by this call. timeout_ms is
 * as for rueda_wait. */
RUEDA_API int rueda_wait_any(const rueda_handle* handles, size_t count, int64_t timeout_ms,
                             size_t* index);
/* Sets *done to 1 if rueda_wait would return at once, and to 0 otherwise. */
RUEDA_API int rueda_test(rueda_handle handle, int* done);

/* Is told of the end of an operation (rueda_then). `error` is what rueda_wait would have returned,
 * 0 or RUEDA_ERR_*, and rueda_last_error() has its sentence until the callback's next call.
 * `result` is never NULL, and valid until the callback returns. The handle has been ended, and its
 * number says only which one it was. `argument` is what rueda_then was given. */
typedef void (*rueda_callback)(rueda_handle handle, int error, const rueda_result* result,
                               void* argument);
/* Has `callback` called when the operation has ended, in place of rueda_wait: no thread waits for
 * it. The results are in the caller's memory by then, and the handle is ended. May be called for an
 * operation that has ended already. Returns RUEDA_ERR_INVALID_ARGUMENT for an unknown handle, one
 * that has a callback, and one that a thread waits for by rueda_wait; RUEDA_ERR_RESOURCE_EXHAUSTED
 * if no thread can be started. After an error the handle is as it was.
 *
 * The callback is called exactly once, unless it is taken back (rueda_then_take_back): with the
 * operation's error if it fails, and with that of the job if the job ends, the daemon dies or
 * rueda_shutdown leaves the operation in flight. It is called by a thread of the library, never by
 * rueda_then, perhaps before that returns. Callbacks run one after the other, in the order in which
 * their operations end. The thread begins with the first rueda_then, blocks all signals, sleeps
 * while nothing ends, and has returned from the last callback when rueda_shutdown returns; after
 * the next rueda_init there is another one. A process that exits without rueda_shutdown is not held
 * up by callbacks that have not been called. A forked child has none.
 *
 * Until the callback is called, rueda_test, rueda_wait_any and rueda_device_wait take the handle as
 * any other; rueda_wait returns RUEDA_ERR_INVALID_ARGUMENT. A rank that is only told of an end does
 * not sleep for it: where a locked order cannot go on because this rank acts only in the callback,
 * the daemons find that out as for a rank that polls, after 200 ms.
 *
 * A callback delays all others, so it is short. It may call every function but those that wait:
 * rueda_init, rueda_shutdown, rueda_wait, rueda_wait_any, the blocking forms, rueda_plan_declare,
 * rueda_process_set_add, rueda_process_set_remove and rueda_then_take_back return
 * RUEDA_ERR_INVALID_ARGUMENT there. So it may submit operations and call rueda_then for them. Once
 * rueda_shutdown has been called, submissions return RUEDA_ERR_SHUT_DOWN; rueda_free goes on to
 * work. It must not wait for a lock whose holder calls rueda_shutdown, and must not throw. */
RUEDA_API int rueda_then(rueda_handle handle, rueda_callback callback, void* argument);
/* Takes back all callbacks that have this function and have not been called: their handles are as
 * if rueda_then had not been called for them. Returns when the function is not being called. It is
 * for the end of a language's runtime before the end of the process. Does nothing before
 * rueda_init. */
RUEDA_API int rueda_then_take_back(rueda_callback callback);

/* The blocking forms submit an operation, then wait for it. After RUEDA_ERR_TIMEOUT the operation
 * goes on without its caller: memory that is not from rueda_alloc is not touched any more; memory
 * from rueda_alloc is in use until the operation ends. */
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
RUEDA_API int rueda_send(const void* data, int64_t count, rueda_dtype dtype, int destination,
                         int64_t tag, uint32_t process_set, int64_t timeout_ms);
/* `source_rank`, which may be NULL, is set to the rank that sent the data. */
RUEDA_API int rueda_recv(void* data, int64_t count, rueda_dtype dtype, int source, int64_t tag,
                         uint32_t process_set, int64_t timeout_ms, int32_t* source_rank);
/* After RUEDA_ERR_TIMEOUT the rank has joined all the same. `last_rank` may be NULL. */
RUEDA_API int rueda_join(int64_t timeout_ms, int32_t* last_rank);

/* --- Tensors in device memory. These functions are all-reduces (by every operator but Adasum) and
 * broadcasts of tensors that lie in a GPU's memory. All ranks submit such a tensor from device
 * memory; otherwise RUEDA_ERR_MISMATCH names two ranks that differ. The node's daemon has a GPU
 * worker reduce the tensor; data for other nodes go through host memory or NCCL. The CUDA driver is
 * loaded (libcuda.so.1, or $RUEDA_CUDA_LIBRARY) with the first such tensor.
 *
 * input and output each lie in one allocation that can be shared with other processes: one of
 * cudaMalloc, or one of virtual memory management that can be exported as a descriptor. With the
 * latter a tensor may lie in several allocations that are mapped one behind another. The worker
 * opens an allocation once, when the first tensor in it is submitted. An allocation that the worker
 * cannot open, as in another container, is copied through pinned host memory, at most
 * $RUEDA_DEVICE_STAGING_BYTES (1 GiB); that is slower, and is said once on standard error. A
 * submission may then wait for room, and rueda_wait for a copy to the device.
 *
 * These functions return the errors of the host's forms, and these: RUEDA_ERR_INVALID_ARGUMENT for
 * memory that cannot be shared, and on several nodes with --reducer device; RUEDA_ERR_UNAVAILABLE
 * without a driver here or at the daemon, or when the job's worker has died;
 * RUEDA_ERR_RESOURCE_EXHAUSTED for more than may be pinned. Tensors in host memory are served all
 * the same. A worker that dies while it carries out an operation ends the job. */

/* RUEDA_NO_STREAM as `stream` says that the inputs are ready at the time of the call. Any other
 * value is a CUstream (NULL: the default stream), and the inputs are ready when the stream has done
 * the work that it had at the time of the call. */
#define RUEDA_NO_STREAM ((void*)-1)

/* These functions are as rueda_allreduce_async and so on. They return without waiting for the
 * stream or for other ranks, but the first call of a process waits for the worker's start. If
 * streams are waiting by rueda_device_wait, an operation that is submitted with a stream begins
 * after these waits. Until the operation has ended, its inputs and outputs must stay allocated and
 * must not be touched. A stream from which a CUDA graph is captured is refused with
 * RUEDA_ERR_INVALID_ARGUMENT, here and by rueda_device_wait. */
RUEDA_API int rueda_device_allreduce_async(const rueda_tensor* tensor,
                                           const rueda_reduce_options* options, void* stream,
                                           rueda_handle* handle);
RUEDA_API int rueda_device_grouped_allreduce_async(const char* group_name,
                                                   const rueda_tensor* tensors, size_t count,
                                                   const rueda_reduce_options* options,
                                                   void* stream, rueda_handle* handle);
RUEDA_API int rueda_device_broadcast_async(const rueda_tensor* tensor, int root_rank, void* stream,
                                           rueda_handle* handle);
/* Makes the stream wait for the operation: work that the stream is given after this call begins
 * when the operation has ended. The host does not wait. If the operation fails, or the daemon or
 * the worker dies, the stream goes on all the same, and the outputs are undefined: rueda_wait,
 * which ends the handle here too, returns the error. */
RUEDA_API int rueda_device_wait(rueda_handle handle, void* stream);
/* Tells the library that the allocation that contains this address is about to be freed, so that
 * the daemon releases it. The call is for hooks of allocators; without it the daemon releases the
 * allocation when its address is used again. Unknown addresses are ignored. Returns
 * RUEDA_ERR_INVALID_ARGUMENT, which names a tensor, while an operation in flight uses the
 * allocation. */
RUEDA_API int rueda_device_forget(const void* memory);
/* With 1 the caller promises to call rueda_device_forget before any device memory of this process
 * is freed. The library then asks the driver only now and then, not at each use, whether an
 * allocation is still the same; a broken promise is reported on standard error, and ends this mode.
 * With 0, the default, the driver is asked each time. Reducing memory that was freed without notice
 * costs the job its GPU worker. */
RUEDA_API int rueda_device_announce_frees(int are_announced);
/* Lets the library see what an allocator of device memory allocates and frees, so that the driver
 * is asked only now and then whether such an allocation is still the same, and the daemon releases
 * it before it is freed: the pointer cache with intercepted calls of Awan et al. (2019), section
 * V-B. `library` is the file name, without folders, of the shared library that has the allocator,
 * "libc10_cuda.so" for PyTorch's; the library must be loaded. Its calls of cudaMalloc and cudaFree
 * go through librueda from then on, to the end of the process; what it had allocated before, or
 * allocates by other functions, is asked for at each use, as all other memory is. One library of a
 * process may be watched; naming it again does nothing. May be called before rueda_init, on any
 * thread. Returns RUEDA_ERR_UNAVAILABLE, with nothing changed, if the library is not loaded or does
 * not import both functions from a shared library; RUEDA_ERR_INVALID_ARGUMENT if another library is
 * watched. */
RUEDA_API int rueda_device_watch_frees(const char* library);

typedef struct rueda_device_stats {
  uint64_t submissions; /* tensors submitted in device memory */
  uint64_t cache_hits;  /* inputs and outputs whose allocations the daemon knew */
  /* inputs and outputs for which the daemon had to be told of an allocation */
  uint64_t cache_misses;
  /* cache misses at an address where another allocation had been known */
  uint64_t recycled_addresses;
  uint64_t allocations;   /* allocations that the daemon knows now */
  uint64_t stream_waits;  /* tensors that a stream was told to wait for */
  uint64_t buffer_checks; /* times that the driver was asked whether memory is still the same */
  uint64_t
      staged_submissions; /* tensors that went through host memory on their way to the worker */
} rueda_device_stats;
RUEDA_API int rueda_get_device_stats(rueda_device_stats* stats);

/* Begins a timeline of the whole job (docs/timeline.md). The launcher of node 0 writes the file, so
 * `path` is a path on that node, and absolute. Any rank may begin and end the timeline, and one
 * call is enough; the file is complete a moment after the end. Returns RUEDA_ERR_INVALID_ARGUMENT
 * on node 0 if a timeline is being written already (to begin) or if none is (to end),
 * and anywhere if the path is not absolute or a flag is unknown. */
enum { RUEDA_TIMELINE_CHUNKS = 1 }; /* flags: the timeline has a mark for each chunk that arrives */
RUEDA_API int rueda_timeline_start(const char* path, uint32_t flags);
RUEDA_API int rueda_timeline_stop(void);

/* The first NaN or infinity that a rank contributed to an all-reduce, a reduce or a reduce-scatter,
 * with ruedarun --check-finite or RUEDA_CHECK_FINITE=1. All ranks are told of the same value, and
 * each reports it on its standard error. */
enum { RUEDA_VALUE_NAN = 0, RUEDA_VALUE_INFINITY = 1, RUEDA_VALUE_MINUS_INFINITY = 2 };
typedef struct rueda_nonfinite {
  char tensor[256];     /* name of the tensor */
  int32_t rank;         /* the rank that contributed the value */
  uint32_t process_set; /* the process set that the tensor was reduced in */
  uint64_t step;    /* how often the rank had submitted a reduction of this name, counted from 1 */
  uint64_t element; /* index of the element in the rank's input, from 0 */
  int32_t value;    /* RUEDA_VALUE_* */
} rueda_nonfinite;
/* Returns 1 and fills *first if this process has been told of such a value, and 0 if not. Never
 * waits. */
RUEDA_API int rueda_first_nonfinite(rueda_nonfinite* first);

/* In an elastic job (ruedarun --min-np): returns 1 if processes wait to take part, 0 if not, and
 * the error that has ended this process's membership, if it has ended (RUEDA_ERR_RANK_LOST, ...).
 * Ranks hear this at different times: they have to agree on it, and then all leave with
 * rueda_shutdown and take part again with rueda_init, which deals ranks anew. Never waits. */
RUEDA_API int rueda_hosts_changed(void);

/* Returns the error of this thread's last call in one sentence, or "" if that call succeeded. The
 * text is valid until the thread's next call. */
RUEDA_API const char* rueda_last_error(void);
/* Returns the name of an error code, such as "RUEDA_ERR_MISMATCH" for -2. */
RUEDA_API const char* rueda_error_name(int error);

typedef struct rueda_stats {
  uint64_t submissions;
  uint64_t completions;
  uint64_t bytes_copied_in;  /* bytes copied from the caller's memory into an arena */
  uint64_t bytes_copied_out; /* bytes copied from an arena to the caller's memory */
  uint64_t arena_bytes;      /* bytes of arenas that are mapped now */
} rueda_stats;
RUEDA_API int rueda_get_stats(rueda_stats* stats);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RUEDA_RUEDA_H */
