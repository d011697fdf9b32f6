// Turns a record of the submission ring into a Submission. The code is pure.
#pragma once

#include "client/abi/rueda_abi.h"
#include "daemon/base/status.h"
#include "daemon/session/memory/arena.h"
#include "daemon/session/memory/device_table.h"
#include "daemon/session/session.h"
#include "daemon/session/submissions/intern.h"

namespace rueda::session {

// `record` must be the daemon's own copy. A correct library cannot produce a record that fails
// here; the error says what is wrong with the record, without saying whose it is.
Result<Submission> check_submission(const rueda_abi_submission& record, const TensorTable& tensors,
                                    const ArenaTable& arenas, const DeviceTable& devices);

}  // namespace rueda::session
