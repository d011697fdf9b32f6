/* The local ABI: the messages on the unix socket and the rings in shared memory between a training
 * process and its node's daemon. Layouts are fixed, little-endian and versioned; docs/abi.md
 * explains them. The header is C11 and C++20.
 *
 * Nothing here is a public API: programs use rueda.h. Each side treats the other's bytes as
 * untrusted: it copies them first and checks the copy. */
#ifndef RUEDA_ABI_H
#define RUEDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define RUEDA_ABI_ASSERT(condition) static_assert(condition, #condition)
extern "C" {
#else
#define RUEDA_ABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define RUEDA_ABI_MAGIC 0x41445552u /* "RUDA" */
#define RUEDA_ABI_VERSION 18u

#define RUEDA_ABI_JOB_ID_BYTES 64 /* with the final NUL */
#define RUEDA_ABI_NODE_ID_BYTES 64
#define RUEDA_ABI_TOKEN_BYTES 32
#define RUEDA_ABI_NAME_BYTES 256 /* with the final NUL */
#define RUEDA_ABI_TEXT_BYTES 1024
#define RUEDA_ABI_MAX_DIMS 8
#define RUEDA_ABI_RING_HEADER_BYTES 4096
#define RUEDA_ABI_MAX_BODY_BYTES 4096
#define RUEDA_ABI_MAX_SET_RANKS 1020
#define RUEDA_ABI_MAX_PLAN_WORDS 1022
#define RUEDA_ABI_MAX_COUNTS 511 /* in one message */
#define RUEDA_ABI_MAX_JOINED 1022
#define RUEDA_ABI_JOIN_NAME "rueda.join"

/* --- Messages on the socket --------------------------------------------------------------- A
 * message is a header, then `body_bytes` bytes of the struct that belongs to its type. Requests are
 * answered in order; STARTED, FAILED, NONFINITE and HOSTS_CHANGED come unasked. The client speaks
 * first. Each type below names its sender and its body. */

enum rueda_abi_message_type {
  RUEDA_ABI_ATTACH = 1, /* client: rueda_abi_attach */
  /* daemon: rueda_abi_attach_reply, with 4 descriptors when code is 0: the memfd of the submission
   * ring, the memfd of the completion ring, the daemon's doorbell (an eventfd that the client
   * writes), and the client's doorbell: one end of a socket pair, where a ring is 8 bytes, read
   * like an eventfd (an eventfd's O_NONBLOCK is shared, so a client could block the daemon's write)
   */
  RUEDA_ABI_ATTACH_REPLY = 2,
  RUEDA_ABI_STARTED = 3,      /* daemon: rueda_abi_started; every rank of the job is there */
  RUEDA_ABI_FAILED = 4,       /* daemon: rueda_abi_status; the job is over, for this reason */
  RUEDA_ABI_ARENA_ADD = 5,    /* client: rueda_abi_arena, with the memfd */
  RUEDA_ABI_ARENA_REMOVE = 6, /* client: rueda_abi_arena; refused while submissions use it */
  RUEDA_ABI_INTERN = 7,       /* client: rueda_abi_intern */
  RUEDA_ABI_REPLY = 8,        /* daemon: rueda_abi_status; answers 5, 6, 7, 9 to 14, 17 to 19, 21 */
  RUEDA_ABI_DETACH = 9,       /* client: no body; a clean goodbye, answered, then both close */
  RUEDA_ABI_PROCESS_SET = 10, /* client: rueda_abi_process_set */
  RUEDA_ABI_PLAN = 11, /* client: rueda_abi_plan; a part of a plan, the last part with is_last */
  /* client: rueda_abi_counts; sent before the INTERN that the counts belong to */
  RUEDA_ABI_COUNTS = 12,
  RUEDA_ABI_FORGET = 13,   /* client: rueda_abi_forget */
  RUEDA_ABI_TIMELINE = 14, /* client: rueda_abi_timeline */
  /* daemon: rueda_abi_nonfinite; a value that the finite check has found */
  RUEDA_ABI_NONFINITE = 15,
  /* client: no body; answered by a NONFINITE once it is known whether there is such a value */
  RUEDA_ABI_ASK_NONFINITE = 16,
  /* client: rueda_abi_device_memory, with a descriptor unless the memory goes by an IPC handle;
   * answered when the GPU worker has opened the memory, or cannot: RUEDA_ERR_PERMISSION if it
   * cannot open it */
  RUEDA_ABI_DEVICE_ADD = 17,
  /* client: rueda_abi_device_remove; refused while submissions use the memory, or a join includes
   * it */
  RUEDA_ABI_DEVICE_REMOVE = 18,
  RUEDA_ABI_DEVICE_JOIN = 19, /* client: rueda_abi_device_join; answered as DEVICE_ADD is */
  /* daemon: no body; in an elastic job: processes wait to take part */
  RUEDA_ABI_HOSTS_CHANGED = 20,
  /* client: no body; a goodbye as DETACH is, of a process of an elastic job that will come back.
   * The client closes the connection when it has done so; until then the daemon keeps the arenas,
   * and an ARENA_ADD over the new connection, of the same memfd, finds them */
  RUEDA_ABI_RESET = 21
};

typedef struct rueda_abi_header {
  uint32_t magic;
  /* checked before any other field, so that a peer of another version gets a clear answer */
  uint16_t version;
  uint16_t type;
  uint32_t body_bytes;
  uint32_t reserved;
} rueda_abi_header;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_header) == 16);

typedef struct rueda_abi_attach {
  char job_id[RUEDA_ABI_JOB_ID_BYTES];
  uint8_t token[RUEDA_ABI_TOKEN_BYTES]; /* the process's own (docs/abi.md) */
  int32_t rank; /* in an elastic job it says nothing: STARTED says which rank the process has */
  int32_t local_rank; /* in an elastic job: the process's slot on the node */
} rueda_abi_attach;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_attach) == 104);

typedef struct rueda_abi_attach_reply {
  int32_t code;                 /* 0 or a negative RUEDA_ERR_* */
  uint32_t submission_capacity; /* records; a power of two */
  uint32_t completion_capacity; /* records; at most this many submissions may be in flight */
  uint32_t reserved;
  char text[RUEDA_ABI_TEXT_BYTES];
} rueda_abi_attach_reply;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_attach_reply) == 1040);

/* Flag of STARTED: the daemon looks for NaN and infinity in this rank's contributions. */
#define RUEDA_ABI_STARTED_CHECKS_FINITE 1u

typedef struct rueda_abi_started {
  uint32_t epoch;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_size;
  int32_t node_index; /* Horovod's cross_rank */
  int32_t node_count; /* Horovod's cross_size */
  uint32_t flags;     /* RUEDA_ABI_STARTED_* */
  char node_id[RUEDA_ABI_NODE_ID_BYTES];
} rueda_abi_started;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_started) == 96);

typedef struct rueda_abi_status {
  int32_t code;   /* 0 or a negative RUEDA_ERR_* */
  uint32_t value; /* INTERN: the tensor's id. ARENA_ADD, DEVICE_ADD, DEVICE_JOIN: the memory's id */
  char text[RUEDA_ABI_TEXT_BYTES];
} rueda_abi_status;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_status) == 1032);

typedef struct rueda_abi_arena {
  /* ARENA_ADD: size of the memfd, a multiple of 4096. All its pages are allocated, and it is sealed
   * against shrinking and growing, and nothing else. */
  uint64_t bytes;
  uint32_t arena_id; /* ARENA_REMOVE: the arena's id */
  uint32_t reserved;
} rueda_abi_arena;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_arena) == 16);

/* The kind of memory that DEVICE_ADD shares. Counters are the client's own memory: a memfd, sealed
 * as an arena is, with twice as many 64-bit words as the rings have records. They are sent once,
 * before all other device memory. The worker carries out a submission on a GPU when word t mod
 * capacity has reached its ticket t, counted with wrap-around, and writes t to the word `capacity`
 * behind it when the submission is done. */
enum rueda_abi_device_kind {
  RUEDA_ABI_DEVICE_IPC = 0,      /* a CUDA IPC handle */
  RUEDA_ABI_DEVICE_FD = 1,       /* a descriptor that the driver has exported */
  RUEDA_ABI_DEVICE_COUNTERS = 2, /* a memfd */
  RUEDA_ABI_DEVICE_STAGING = 3 /* a memfd, sealed as an arena is: host memory in place of a GPU's */
};

/* A whole allocation of a GPU's memory, or the counters. */
typedef struct rueda_abi_device_memory {
  uint32_t kind; /* rueda_abi_device_kind */
  uint32_t reserved;
  uint64_t bytes;
  uint8_t device[16]; /* the GPU's uuid; all memory of a job is reached from the GPU of the first */
  uint8_t ipc[64];    /* for IPC: the handle; else 0 */
} rueda_abi_device_memory;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_device_memory) == 96);

/* DEVICE_JOIN: several memories that came by descriptors, all of one GPU and each once, become one
 * memory, for a tensor that goes on from one allocation to the next. */
typedef struct rueda_abi_device_join {
  uint32_t count; /* at least 2 */
  uint32_t reserved;
  uint32_t memory_ids[RUEDA_ABI_MAX_JOINED]; /* in order; the unused entries are 0 */
} rueda_abi_device_join;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_device_join) == 4096);

typedef struct rueda_abi_device_remove {
  uint32_t memory_id;
  uint32_t reserved;
} rueda_abi_device_remove;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_device_remove) == 8);

/* The descriptor of a tensor. Values of kind, dtype, op and wire_dtype are those of
 * daemon/base/dtype.h and of rueda.h. A join, of kind 6, has no shape; its name is
 * RUEDA_ABI_JOIN_NAME, which no other tensor may have. Its completion's `value` is the last rank
 * that joined.
 *
 * In the kinds where each rank has a part of the values to itself (allgather 7, reduce-scatter 9,
 * alltoall 10, gather 11, scatter 12) the shape is that of all parts one behind the other, and the
 * client says which rank of how many of the process set it is, from 0. A submission gives as much
 * memory as the rank has of input and output (daemon/base/parts.h); where it has none, arena and
 * offset are 0. */
typedef struct rueda_abi_intern {
  uint8_t kind;
  uint8_t dtype;
  uint8_t op;
  uint8_t ndim;
  int32_t root; /* rank of the root, of a broadcast, reduce (8), gather or scatter; else -1 */
  uint32_t process_set; /* id of the process set; 0: all ranks */
  uint32_t group_size;  /* 0: not grouped */
  double prescale;
  double postscale;
  int32_t place;  /* place of this rank in the process set, for kinds with parts; else 0 */
  int32_t places; /* number of ranks in the process set, for kinds with parts; else 0 */
  /* number of counts sent before: 0, or one for each part; an alltoall's are ordered by sender,
   * then receiver */
  uint32_t count_count;
  /* type that values are rounded to on the network: 0 none, 1 float16, 2 bfloat16; only for
   * allreduce, reduce, reduce-scatter of float32 */
  uint32_t wire_dtype;
  /* 0: the host's memory, in arenas. 1: a GPU's memory, for allreduce (but Adasum) and broadcast;
   * submissions then name memory of DEVICE_ADD in place of arenas */
  uint32_t memory;
  uint32_t reserved;
  int64_t dims[RUEDA_ABI_MAX_DIMS];
  char name[RUEDA_ABI_NAME_BYTES];
  char group[RUEDA_ABI_NAME_BYTES];
} rueda_abi_intern;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_intern) == 632);

/* COUNTS: the parts of the tensor to be interned next, in rows of the first dimension. Counts may
 * go on in several messages. */
typedef struct rueda_abi_counts {
  uint32_t count;
  uint32_t reserved;
  int64_t counts[RUEDA_ABI_MAX_COUNTS];
} rueda_abi_counts;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_counts) == 4096);

/* FORGET: the client will not submit the tensor again under this id, and the daemon may give the id
 * to another. The tensor is in no declared plan, and no submission of it is in flight in the ring.
 */
typedef struct rueda_abi_forget {
  uint32_t tensor_id;
  uint32_t reserved;
} rueda_abi_forget;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_forget) == 8);

enum rueda_abi_set_change { RUEDA_ABI_SET_ADD = 0, RUEDA_ABI_SET_REMOVE = 1 };

/* A change of the job's process sets that all ranks have to submit. It is interned like a tensor;
 * the completion's `value` is the id of the set. */
typedef struct rueda_abi_process_set {
  uint32_t change;      /* rueda_abi_set_change */
  uint32_t process_set; /* REMOVE: id of the set */
  uint32_t rank_count;  /* ADD: number of ranks */
  uint32_t reserved;
  int32_t ranks[RUEDA_ABI_MAX_SET_RANKS];
} rueda_abi_process_set;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_process_set) == 4096);

/* A part of a plan that all ranks have to declare; it is interned like a tensor. The words of all
 * parts, one after another, are for each tensor: its id, how many tensors it depends on, and their
 * places in the plan, counted from 0, each before its own. The reply to the last part has the id to
 * submit, the replies to the others 0. */
typedef struct rueda_abi_plan {
  uint32_t word_count;
  uint32_t is_last; /* 1 for the last part; 0: more follow */
  uint32_t words[RUEDA_ABI_MAX_PLAN_WORDS];
} rueda_abi_plan;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_plan) == 4096);

/* Begins or ends the job's timeline. The launcher of node 0 writes the file. */
typedef struct rueda_abi_timeline {
  uint32_t begins; /* 1: begin; 0: end, and the other fields are 0 */
  uint32_t chunks; /* 1: with a mark for each chunk that arrives */
  char path[RUEDA_ABI_TEXT_BYTES];
} rueda_abi_timeline;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_timeline) == 1032);

/* A value that was not finite in a rank's contribution to a reduction. */
typedef struct rueda_abi_nonfinite {
  uint32_t is_found; /* 1: found; 0: there is none, and the other fields are 0 */
  int32_t rank;
  /* how often the rank had submitted a reduction of this name, including this submission */
  uint64_t step;
  uint64_t element; /* index in the rank's input */
  uint32_t value;   /* 0 NaN, 1 infinity, 2 minus infinity */
  uint32_t process_set;
  char tensor[RUEDA_ABI_NAME_BYTES];
  char text[RUEDA_ABI_TEXT_BYTES]; /* the same report in one sentence */
} rueda_abi_nonfinite;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_nonfinite) == 1312);

/* --- Rings in shared memory ---------------------------------------------------------------- Each
 * ring has one producer and one consumer. Indices count up for ever; record i lies at i mod
 * capacity. The producer writes the record, then tail (release); the consumer reads tail (acquire),
 * the record, then writes head (release). A side that is about to sleep sets its `waiting` to 1,
 * fences, and looks at the ring once more; the other side, after moving its index, fences, and
 * rings the doorbell only if it changes `waiting` from 1 to 0. Setting producer_waits_for to a
 * ticket is announced to the daemon like a record. */

typedef struct rueda_abi_ring {
  uint32_t magic;
  uint32_t version;
  uint32_t capacity; /* informative: each side trusts what the attach reply said */
  uint32_t record_bytes;
  uint8_t pad0[48];
  uint64_t tail; /* written by the producer; atomic */
  uint8_t pad1[56];
  uint64_t head; /* written by the consumer; atomic */
  uint8_t pad2[56];
  uint32_t consumer_waiting; /* atomic */
  uint32_t reserved;
  /* submission ring: the ticket whose end a thread of the client sleeps for, 0 if no thread does;
   * atomic. It is a hint: by it the daemon sees that a locked schedule cannot go on
   * (docs/protocol.md, L6) */
  uint64_t producer_waits_for;
  uint8_t pad3[48];
} rueda_abi_ring;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_ring) == 256);
RUEDA_ABI_ASSERT(offsetof(rueda_abi_ring, tail) == 64 && offsetof(rueda_abi_ring, head) == 128 &&
                 offsetof(rueda_abi_ring, consumer_waiting) == 192 &&
                 offsetof(rueda_abi_ring, producer_waits_for) == 200);

/* Flags of a submission: the library copied the tensor into the arena, or will copy it out. They
 * let the daemon count copies. */
#define RUEDA_ABI_FLAG_COPIED_IN 1u
#define RUEDA_ABI_FLAG_COPIED_OUT 2u
/* Flags of a submission that is no tensor: a send or a receive. The record is a rueda_abi_transfer.
 */
#define RUEDA_ABI_FLAG_SEND 4u
#define RUEDA_ABI_FLAG_RECEIVE 8u
/* Flag of a record that takes back a send or a receive in flight, and has a ticket of its own,
 * which ends at once. The record is a rueda_abi_transfer with nothing but its ticket, its flags and
 * `cancels`. What is taken back ends with RUEDA_ERR_UNAVAILABLE, if it has met no other half. */
#define RUEDA_ABI_FLAG_CANCEL 16u
/* The peer of a receive that takes what any rank sends. */
#define RUEDA_ABI_ANY_SOURCE (-1)
/* Flag of a completion: the daemon has sent a message on the socket that was not asked for. */
#define RUEDA_ABI_FLAG_NEWS 1u

/* A record of the submission ring, which the client produces: records begin at byte
 * RUEDA_ABI_RING_HEADER_BYTES. */
typedef struct rueda_abi_submission {
  uint64_t ticket; /* chosen by the client; differs modulo capacity from all tickets in flight */
  uint32_t tensor_id;
  uint32_t flags; /* RUEDA_ABI_FLAG_*; unknown bits are refused */
  /* for a tensor in a GPU's memory: an id of DEVICE_ADD; also for output_arena */
  uint32_t input_arena;
  uint32_t output_arena; /* may equal input_arena with the same offset: the operation is in place */
  uint64_t input_offset; /* bytes; a multiple of the element's size */
  uint64_t output_offset;
  int32_t priority; /* among the operations under way on the node, a higher one goes first (L12) */
  uint32_t reserved0;
  uint64_t reserved1[2];
} rueda_abi_submission;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_submission) == 64);

/* A record of the same ring, with RUEDA_ABI_FLAG_SEND or RUEDA_ABI_FLAG_RECEIVE: a message from one
 * rank to another. Nothing of it is interned. */
typedef struct rueda_abi_transfer {
  uint64_t ticket;      /* as in rueda_abi_submission */
  uint32_t process_set; /* id of the process set; 0: all ranks */
  uint32_t flags;       /* where rueda_abi_submission has them */
  uint32_t arena;       /* the input of a send, or the output of a receive; 0 without elements */
  int32_t peer;         /* rank of the job at the other end; RUEDA_ABI_ANY_SOURCE for a receive */
  uint64_t offset;      /* bytes; a multiple of the element's size; 0 without elements */
  uint64_t elements;
  uint32_t dtype;
  uint32_t reserved0;
  int64_t tag;      /* any number */
  uint64_t cancels; /* with RUEDA_ABI_FLAG_CANCEL, a ticket; otherwise 0 */
} rueda_abi_transfer;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_transfer) == sizeof(rueda_abi_submission));
RUEDA_ABI_ASSERT(offsetof(rueda_abi_transfer, ticket) == offsetof(rueda_abi_submission, ticket) &&
                 offsetof(rueda_abi_transfer, flags) == offsetof(rueda_abi_submission, flags));

/* A record of the completion ring, which the daemon produces: records begin at byte
 * RUEDA_ABI_RING_HEADER_BYTES; behind them is one text of RUEDA_ABI_TEXT_BYTES for each record. */
typedef struct rueda_abi_completion {
  uint64_t ticket;
  int32_t code; /* 0 or a negative RUEDA_ERR_* */
  uint32_t epoch;
  uint32_t contributors; /* ranks whose values are in the result */
  uint32_t text_bytes;   /* length of the error's text, without a NUL; 0 when there is no text */
  uint64_t seq;          /* operation number; 0 when the operation never got one */
  /* for a change of process sets: the set's id; for a join: the last rank that joined; for a send
   * or a receive: the rank at the other end */
  uint32_t value;
  uint32_t flags; /* RUEDA_ABI_FLAG_NEWS, or 0 */
  uint64_t reserved[3];
} rueda_abi_completion;
RUEDA_ABI_ASSERT(sizeof(rueda_abi_completion) == 64);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RUEDA_ABI_H */
