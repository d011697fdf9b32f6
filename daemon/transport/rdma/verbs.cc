#include "daemon/transport/rdma/verbs.h"

#ifdef RUEDA_HAS_VERBS

#include <cstring>
#include <string>

#include <dlfcn.h>

namespace rueda::transport::rdma {

namespace {

constexpr char kLibrary[] = "libibverbs.so.1";

Result<Verbs> load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return Status(Code::kNotFound, std::string("RDMA needs ") + kLibrary +
                                       " (Debian's packages libibverbs1 and ibverbs-providers): " +
                                       (reason != nullptr ? reason : "it cannot be loaded"));
  }
  Verbs verbs;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(verbs.get_device_list, "ibv_get_device_list");
  find(verbs.free_device_list, "ibv_free_device_list");
  find(verbs.get_device_name, "ibv_get_device_name");
  find(verbs.open_device, "ibv_open_device");
  find(verbs.close_device, "ibv_close_device");
  find(verbs.query_device, "ibv_query_device");
  find(verbs.query_port_of_old, "ibv_query_port");
  find(verbs.query_gid_entry, "_ibv_query_gid_ex");
  find(verbs.alloc_pd, "ibv_alloc_pd");
  find(verbs.dealloc_pd, "ibv_dealloc_pd");
  find(verbs.reg_mr, "ibv_reg_mr");
  verbs.reg_dmabuf_mr =
      reinterpret_cast<decltype(verbs.reg_dmabuf_mr)>(dlsym(library, "ibv_reg_dmabuf_mr"));
  find(verbs.dereg_mr, "ibv_dereg_mr");
  find(verbs.create_comp_channel, "ibv_create_comp_channel");
  find(verbs.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(verbs.create_cq, "ibv_create_cq");
  find(verbs.destroy_cq, "ibv_destroy_cq");
  find(verbs.get_cq_event, "ibv_get_cq_event");
  find(verbs.ack_cq_events, "ibv_ack_cq_events");
  find(verbs.create_qp, "ibv_create_qp");
  find(verbs.modify_qp, "ibv_modify_qp");
  find(verbs.destroy_qp, "ibv_destroy_qp");
  find(verbs.wc_status_str, "ibv_wc_status_str");
  if (missing.empty()) return verbs;
  return Status(Code::kVersion,
                std::string(kLibrary) + " lacks " + missing + ": RDMA needs rdma-core 32 or later");
}

}  // namespace

// The library's own inline function refers to the symbol, which is found at run time here.
int Verbs::query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes) const {
  std::memset(attributes, 0, sizeof(*attributes));
  const verbs_context* const extended = verbs_get_ctx_op(context, query_port);
  if (extended == nullptr) {
    return query_port_of_old(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
  }
  return extended->query_port(context, port, attributes, sizeof(*attributes));
}

Result<const Verbs*> load_verbs() {
  static const Result<Verbs> loaded = load();
  if (!loaded.is_ok()) return loaded.status();
  return &loaded.value();
}

}  // namespace rueda::transport::rdma

#endif
