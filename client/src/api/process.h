// The one session of this process, and what happens to it when the process forks or exits. All
// functions are thread-safe.
#pragma once

#include <memory>

#include "client/src/session/session.h"

namespace rueda::client {

// Returns the session, or NULL before attach_process and after detach_process. In a forked child it
// returns an error.
Result<Session*> process_session();
// Returns the session, or NULL if there is none or this is a forked child.
Session* usable_session();

Status attach_process(const rueda_init_options* options);
Status detach_process();
bool is_forked_child();

// Frees memory of rueda_alloc, also after a shutdown.
Status free_memory(void* memory);
// Wraps the first `bytes` bytes of a block as a DLPack tensor (rueda_dlpack). A block that is
// shared like this is also owned by its DLPack tensors. shares_of_memory() counts them.
Result<void*> share_memory(void* memory, size_t bytes);
int shares_of_memory(const void* memory);

}  // namespace rueda::client
