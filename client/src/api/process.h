// The one session of this process, and what happens to it when the process forks or exits.
#pragma once

#include <memory>
#include <mutex>

#include "client/src/session/session.h"

namespace rueda::client {

// The session, or NULL before attach_process and after detach_process. In a forked child: an error.
Result<Session*> process_session();
// The same, null where that has none or an error.
Session* usable_session();

Status attach_process(const rueda_init_options* options);
Status detach_process();
bool is_forked_child();

// rueda_free, which works after a shutdown too.
Status free_memory(void* memory);
// Likewise. A block that is shared has tensors of DLPack that own it besides.
Result<void*> share_memory(void* memory, size_t bytes);
int shares_of_memory(const void* memory);

}  // namespace rueda::client
