// Loads libibverbs at run time, so that a machine without RDMA needs nothing of it. Only its
// headers are needed to build, and a build without them (RUEDA_HAS_VERBS undefined) says so at run
// time.
#pragma once

#include "daemon/base/status.h"

#ifdef RUEDA_HAS_VERBS
#include <infiniband/verbs.h>
#endif

namespace rueda::transport::rdma {

#ifdef RUEDA_HAS_VERBS

// The functions of the library that are not inline in its header. Names and contracts are those of
// ibv_... in its manual pages.
struct Verbs {
  ibv_device** (*get_device_list)(int*) = nullptr;
  void (*free_device_list)(ibv_device**) = nullptr;
  const char* (*get_device_name)(ibv_device*) = nullptr;
  ibv_context* (*open_device)(ibv_device*) = nullptr;
  int (*close_device)(ibv_context*) = nullptr;
  int (*query_device)(ibv_context*, ibv_device_attr*) = nullptr;
  int (*query_port_of_old)(ibv_context*, uint8_t, _compat_ibv_port_attr*) = nullptr;
  int (*query_gid_entry)(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry*,
                         uint32_t flags, size_t entry_bytes) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context*) = nullptr;
  int (*dealloc_pd)(ibv_pd*) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int access) = nullptr;
  // Null in libraries before rdma-core 34.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, uint64_t offset, size_t, uint64_t iova, int fd,
                           int access) = nullptr;
  int (*dereg_mr)(ibv_mr*) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context*) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel*) = nullptr;
  ibv_cq* (*create_cq)(ibv_context*, int entries, void*, ibv_comp_channel*, int vector) = nullptr;
  int (*destroy_cq)(ibv_cq*) = nullptr;
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void**) = nullptr;
  void (*ack_cq_events)(ibv_cq*, unsigned int) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*) = nullptr;
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp*) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status) = nullptr;

  // Returns 0, or an errno value.
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes) const;
};

// Loads the library once in the process, and keeps it. The error is kNotFound if it is not
// installed, and kVersion if it lacks a function. Thread-safe.
Result<const Verbs*> load_verbs();

#endif

}  // namespace rueda::transport::rdma
